"""DRRN, INV-DY and the Q-learner that XTX shares with them."""
