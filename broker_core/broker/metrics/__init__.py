"""Prometheus metrics, request timing and the HTTP endpoint."""
