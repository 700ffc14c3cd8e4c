"""The live view: the page of a report, kept up to date in browsers while runs go on. Only reads."""
