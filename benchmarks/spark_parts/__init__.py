"""Parts of the benchmarks of the Spark source and sink."""
