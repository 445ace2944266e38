"""Spark Structured Streaming source and sink for RocketMQ-format stores.

The source and the sink come with later issues; today this package holds no public name. The store
that they stand on is `broker_core`.
"""

from __future__ import annotations

__all__: list[str] = []
