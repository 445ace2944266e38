"""Parts of the benchmark of the broker, and the servers that they start."""
