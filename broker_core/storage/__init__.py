"""Files on disk: the commit log, the consume queues, the index and their recovery."""
