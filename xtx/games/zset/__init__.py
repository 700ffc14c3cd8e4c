"""Set execution: thousands of commands judged in one run of a Z-machine."""
