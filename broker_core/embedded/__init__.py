"""Name server and broker together: in one process of their own, for tests and notebooks."""
