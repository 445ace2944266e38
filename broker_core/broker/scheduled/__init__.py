"""Delay levels and timer messages: stored, delivered when due, recalled."""
