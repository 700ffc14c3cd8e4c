"""Words and texts as numbers."""
