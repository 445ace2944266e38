"""Append groups: size, offset ranges, prepared records."""
