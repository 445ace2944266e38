"""For notebooks and terminals: live progress of queries, and the `%rmq` magics."""
