"""Settings, the presets of the paper and ours, their bounds, and reading config.json."""
