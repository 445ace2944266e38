"""Concurrency primitives and the clock; independent of messages and files."""
