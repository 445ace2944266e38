"""Decides when bytes are synced, notifies the waiters, and fences the store on failure."""
