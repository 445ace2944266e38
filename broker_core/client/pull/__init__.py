"""Pull consumer, range streams, offsets and received messages."""
