"""Finding out what must be known of a story of which neither Jericho nor a compiler says anything.

Grammar and objects are read from the file. The rest is found by cause and effect: a number in memory is changed, a
command is given, and what the story prints says what the number is for. `discover.discover` puts it together.
"""
