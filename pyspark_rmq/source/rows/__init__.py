"""Ranges of queues to Arrow batches."""
