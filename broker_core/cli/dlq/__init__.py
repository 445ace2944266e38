"""`rmq dlq`."""
