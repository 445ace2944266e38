"""Schemas by id: registries, and the frame with the id before a body."""
