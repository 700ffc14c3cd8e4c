"""Which games there are, where their story files lie, and what must be known of each."""
