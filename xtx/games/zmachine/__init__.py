"""Reading a Z-machine's memory without running it."""
