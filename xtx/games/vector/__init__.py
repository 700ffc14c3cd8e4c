"""Several games stepped in lock-step over worker processes."""
