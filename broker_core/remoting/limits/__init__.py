"""Budgets of connections, requests and bytes, per peer and in total."""
