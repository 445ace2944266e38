"""Parts of the benchmark of the store."""
