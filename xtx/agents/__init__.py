"""Agents. An agent sees observations and answers with decisions; it never sees the game."""
