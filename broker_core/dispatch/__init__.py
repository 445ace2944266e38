"""Turns log records into queue units and index entries, and announces new ones."""
