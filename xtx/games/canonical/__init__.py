"""Canonical states and their keys, and the survey that finds what they are made of."""
