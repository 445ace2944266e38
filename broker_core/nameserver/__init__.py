"""Which brokers are alive, which topics they hold, and the server that tells clients."""
