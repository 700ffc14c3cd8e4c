"""Plots as SVG and PNG, and maps of rooms."""
