"""Typed payloads: message bodies to Arrow columns and back. No Spark."""
