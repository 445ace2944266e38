"""Concurrency primitives and the clock; knows nothing of messages or files."""
