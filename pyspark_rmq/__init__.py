"""Spark Structured Streaming and batch reads of RocketMQ topics: `.format("rmq")`.

Spark finds the source by itself once the package is installed. Importing this module starts and
connects nothing, and needs neither Spark nor Arrow before a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_core import EmbeddedCluster
    from pyspark_rmq.data_source import RmqDataSource as DefaultSource
    from pyspark_rmq.embedded import EmbeddedBroker

__all__ = ["DefaultSource", "EmbeddedBroker", "EmbeddedCluster", "register"]


def register(spark: Any, name: str = "rocketmq") -> None:
    """Make the source known to a session under another name, or where Spark did not find it."""
    from pyspark_rmq.data_source import registered_as

    spark.dataSource.register(registered_as(name))


def __getattr__(name: str) -> Any:
    # Spark looks for DefaultSource in every package called pyspark_…, so it must be found here.
    if name == "DefaultSource":
        from pyspark_rmq.data_source import RmqDataSource

        return RmqDataSource
    if name == "EmbeddedBroker":
        from pyspark_rmq.embedded import EmbeddedBroker

        return EmbeddedBroker
    if name == "EmbeddedCluster":
        from broker_core import EmbeddedCluster

        return EmbeddedCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
