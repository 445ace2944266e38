"""Copies one log to other brokers: frames, sessions, epochs and confirmed positions."""
