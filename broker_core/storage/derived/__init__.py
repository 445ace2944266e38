"""Files derived from the log: consume queues, the index and their checkpoint."""
