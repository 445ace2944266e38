"""Competitors of the Spark benchmarks, with the settings that each row names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

# For reads of a backlog: large polls and fetches, in records that Spark requests from its consumer
# and in bytes that the consumer requests from the broker.
KAFKA_READS_TUNED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.max.poll.records": "50000",
        "kafka.max.partition.fetch.bytes": str(16 << 20),
        "kafka.fetch.max.bytes": str(64 << 20),
        "kafka.receive.buffer.bytes": str(1 << 20),
    }
)
# For rows that come one by one: the broker answers a fetch at once.
KAFKA_LATENCY_TUNED: Final[Mapping[str, str]] = MappingProxyType({"kafka.fetch.max.wait.ms": "5"})
# As large as the broker takes a batch by default (message.max.bytes), and time to fill it.
KAFKA_WRITES_TUNED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.batch.size": str(1_000_000),
        "kafka.linger.ms": "20",
        "kafka.buffer.memory": str(128 << 20),
    }
)
KAFKA_SYNCED: Final[Mapping[str, str]] = MappingProxyType({"flush.messages": "1"})

KAFKA_DEFAULT: Final = "kafka default"
KAFKA_TUNED: Final = "kafka tuned"


class Reading(NamedTuple):
    """One competitor: a format with its options, and the columns to read."""

    name: str
    format: str
    options: Mapping[str, str]
    settings: str
    """Settings, as the rows of the report name them."""
    columns: str = ""
    """For `.schema(…)`; empty takes all of them."""
    selects: str = ""
    """For `.select(…)`, where a format has no schema to choose."""

    def load(self, reader: Any) -> Any:
        """The frame; `reader` is `spark.read` or `spark.readStream`."""
        reader = reader.format(self.format).options(**self.options)
        if self.columns:
            reader = reader.schema(self.columns)
        frame = reader.load()
        return frame.select(self.selects) if self.selects else frame


class Writing(NamedTuple):
    """One competitor: a format with its options."""

    name: str
    format: str
    options: Mapping[str, str]
    settings: str


def settings_text(options: Mapping[str, str], otherwise: str = "defaults") -> str:
    """Options as `a=1, b=2`; a default is named as such."""
    return ", ".join(f"{name}={value}" for name, value in options.items()) or otherwise


def size_name(size: int) -> str:
    """100B, 1KiB, 10KiB: as names of goals have it."""
    return f"{size >> 10}KiB" if size >= 1024 else f"{size}B"
