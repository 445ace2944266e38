"""Reads by offset, position, time and key, from this process or another."""
