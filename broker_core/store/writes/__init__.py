"""Puts: checks, offsets, the append, the result."""
