"""The executor side of the sink: columns to messages to brokers."""
