"""The command line: each subcommand is a module with `Args`, its options, and `run`."""
