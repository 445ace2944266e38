"""Settings and limits of a name server, and their form as Java properties.

Frozen: a change makes a new record. Only keys of `UPDATABLE` can be changed by a request; paths,
addresses and limits never can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from broker_core.errors import InvalidArgument

PROPERTIES_SIZE_MAX: Final = 64 << 10

UPDATABLE: Final[Mapping[str, str]] = {"orderMessageEnable": "order_message_enable"}


@dataclasses.dataclass(frozen=True, slots=True)
class RouteLimits:
    """Limits of the tables."""

    topics_max: int = 100_000
    # Rows are topics times the brokers that hold them.
    routes_max: int = 500_000
    broker_names_max: int = 1_000
    members_per_broker_max: int = 64
    queues_per_topic_max: int = 65_536
    kv_entries_max: int = 10_000
    kv_value_size_max: int = 32 << 10
    registration_size_max: int = 16 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class NameServerSettings:
    """Settings of a name server; the defaults are RocketMQ's."""

    order_message_enable: bool = False
    heartbeat_timeout_ms: int = 120_000
    scan_interval_ms: int = 5_000
    limits: RouteLimits = dataclasses.field(default_factory=RouteLimits)

    def as_properties(self) -> bytes:
        """`key=value` lines, as the administration tools show them."""
        shown = {
            "orderMessageEnable": "true" if self.order_message_enable else "false",
            "scanNotActiveBrokerInterval": str(self.scan_interval_ms),
        }
        return "".join(f"{key}={value}\n" for key, value in shown.items()).encode()

    def refused_keys(self, changes: Mapping[str, str]) -> tuple[str, ...]:
        """Keys of `changes` that a request may not change."""
        return tuple(key for key in changes if key not in UPDATABLE)

    def updated(self, changes: Mapping[str, str]) -> NameServerSettings:
        """A copy with `changes`, which must be allowed by `refused_keys`."""
        values: dict[str, Any] = {}
        for key, text in changes.items():
            if text.lower() not in ("true", "false"):
                raise InvalidArgument(f"{key:.100} is {text[:60]!r}: give true or false")
            values[UPDATABLE[key]] = text.lower() == "true"
        return dataclasses.replace(self, **values)


def parse_properties(body: bytes | memoryview) -> dict[str, str]:
    """`key=value` lines of an update request; comments and empty lines are skipped."""
    if len(body) > PROPERTIES_SIZE_MAX:
        raise InvalidArgument(f"properties have more than {PROPERTIES_SIZE_MAX} bytes")
    try:
        text = bytes(body).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidArgument("properties are not UTF-8") from None
    found = {}
    for line in text.splitlines():
        entry = line.strip()
        if entry and entry[0] not in "#!":
            key, equals, value = entry.partition("=")
            if not equals:
                raise InvalidArgument(f"{entry[:60]!r} is not key=value")
            found[key.strip()] = value.strip()
    return found
