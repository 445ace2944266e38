"""Commands for people at a terminal: lag, top, quickstart, completion."""
