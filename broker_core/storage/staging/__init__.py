"""Staging files of batches that are not published yet."""
