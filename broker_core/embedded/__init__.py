"""Brokers and clusters in child processes, for tests and notebooks."""
