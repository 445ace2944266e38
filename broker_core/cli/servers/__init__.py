"""`rmq broker`, `namesrv`, `standalone` and `cluster`."""
