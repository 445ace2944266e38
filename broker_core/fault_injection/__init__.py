"""Faults and a clock for tests, inside the process of an embedded broker."""
