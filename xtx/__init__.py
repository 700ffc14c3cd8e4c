"""Agents that learn to play text adventures."""
