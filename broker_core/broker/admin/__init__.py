"""Requests of administrators: topics, groups, offsets, statistics, clean-up, broker info."""
