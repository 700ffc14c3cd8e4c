"""The subcommands that belong to no other room: each module has `Args`, what can be typed, and `run`."""
