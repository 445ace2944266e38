"""Reading: consume-queue offsets are the stream's offsets. Comes with a later issue."""
