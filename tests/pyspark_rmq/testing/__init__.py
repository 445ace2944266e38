"""Tests of `pyspark_rmq/notebook/`."""
