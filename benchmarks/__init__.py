"""Benchmarks.

The files of this folder are commands: `broker`, `replication`, `store`, `payloads`, `spark_source`
and `spark_sink` measure; `report` runs all of them and writes the page. `NAME_parts/` has the parts
of a command, `spark_parts/` those of both for Spark. `measuring/` is shared by all; `peers/` starts
the other systems.
"""
