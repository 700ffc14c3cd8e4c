"""Training as a library: from a config to a finished or stopped run, without a terminal."""
