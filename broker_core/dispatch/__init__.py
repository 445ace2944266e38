"""Turns log records into queue units and index entries, and says when new ones are visible."""
