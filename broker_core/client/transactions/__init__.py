"""Transactional producer."""
