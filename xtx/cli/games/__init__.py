"""The subcommands of `xtx games`."""
