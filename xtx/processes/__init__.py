"""Child processes: how they are started, what they may use, how they end, and functions that are called in one."""
