"""Bytes to values and back. No I/O, clock or logging."""
