"""Opening, reading and writing files that may be damaged, hostile or half written."""
