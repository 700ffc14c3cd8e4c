"""The Frotz emulator behind Jericho, and texts that go into it and come out of it."""
