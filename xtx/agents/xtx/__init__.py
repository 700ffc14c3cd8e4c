"""XTX: imitate the best trajectories, then explore from where they end."""
