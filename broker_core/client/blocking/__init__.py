"""Synchronous faces of the asynchronous clients."""
