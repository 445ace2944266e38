"""The name server: tables of live brokers and their topics, and request handlers."""
