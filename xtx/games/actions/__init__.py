"""The search for valid actions."""
