"""Reading: queue offsets are the offsets of the stream; ranges of them become Arrow batches."""
