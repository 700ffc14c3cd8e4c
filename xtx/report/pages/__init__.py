"""The content of a report, whatever it is written as."""
