"""The broker: `broker.py`, what features share, and one folder per feature."""
