"""The folder of a run: config, lines, checkpoints, and files for viewers. Never loads torch."""
