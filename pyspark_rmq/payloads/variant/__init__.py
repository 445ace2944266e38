"""Columns of Spark's type VARIANT."""
