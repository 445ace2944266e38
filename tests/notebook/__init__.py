"""Tests of `broker_core/notebook/`."""
