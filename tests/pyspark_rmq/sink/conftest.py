"""The fixture of tests whose batches span brokers."""

from __future__ import annotations

from tests.pyspark_rmq.sink.two_masters import on_masters

__all__ = ["on_masters"]
