"""Profiles: named clusters with their account and TLS settings, in a private file."""
