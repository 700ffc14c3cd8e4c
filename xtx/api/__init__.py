"""The public Python API: what `import xtx` offers is defined here, and loaded when it is first used."""
