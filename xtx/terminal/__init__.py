"""What a terminal shows: progress panels, and the commands that messages name."""
