"""Walkthroughs played with valid actions: how many of their steps those reproduce, and how far they carry."""
