"""The command line, `rmq`."""
