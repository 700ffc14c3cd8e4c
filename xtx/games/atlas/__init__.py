"""The atlas: a persistent store of what was found out about states."""
