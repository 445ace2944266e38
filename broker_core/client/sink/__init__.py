"""Client side of the exactly-once sink."""
