"""Benchmarks.

Commands: `broker`, `replication`, `store`, `payloads`, `spark_source` and `spark_sink`; `report`
runs all of them and writes the page. The other modules are their parts.
"""
