"""Connections that carry commands: a server, a client, and what both limit."""
