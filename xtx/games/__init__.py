"""The only room that knows emulators: stories, their states and their valid actions."""
