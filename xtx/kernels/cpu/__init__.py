"""Recurrent networks and attention on CPUs, in C."""
