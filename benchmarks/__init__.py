"""Benchmarks: run `store.py`; the other modules are its parts."""
