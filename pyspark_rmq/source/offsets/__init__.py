"""Positions of a stream: discovery, look-up, planning, loss."""
