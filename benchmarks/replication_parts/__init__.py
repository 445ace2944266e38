"""Parts of the benchmark of replication."""
