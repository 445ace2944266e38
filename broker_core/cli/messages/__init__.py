"""`rmq produce` and `rmq consume`."""
