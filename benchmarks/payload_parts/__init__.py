"""Parts of the benchmark of typed payloads: records, competitors, reads."""
