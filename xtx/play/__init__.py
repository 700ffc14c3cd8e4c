"""Playing in the terminal: by hand, or by watching an agent."""
