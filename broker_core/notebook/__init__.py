"""What notebooks and scripts do with a cluster: send, read, tables, display."""
