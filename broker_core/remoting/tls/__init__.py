"""TLS contexts, listeners and certificate reload."""
