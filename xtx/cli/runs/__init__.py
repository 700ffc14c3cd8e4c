"""The subcommands that read finished or running runs."""
