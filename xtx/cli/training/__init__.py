"""The subcommands that train agents, alone or in sweeps."""
