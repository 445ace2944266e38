"""Attributes of topics and groups, which tools of 5.x set: `+message.type=FIFO,-queue.type`.

Pure. Only attributes that this broker implements are accepted: a topic that asks for compaction
must not be created without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from broker_core.errors import InvalidArgument

# Attribute -> accepted values.
Accepted = Mapping[str, Collection[str]]
TOPIC_ATTRIBUTES: Final[Accepted] = {
    # A hint for clients; the broker stores every kind.
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
}
GROUP_ATTRIBUTES: Final[Accepted] = {
    # Weights queues for POP; no effect on pulls, in RocketMQ either.
    "priority.factor": tuple(str(percent) for percent in range(101)),
}


def parse_attribute_changes(text: str) -> dict[str, str]:
    """The field of a request as a map; keys keep their sign."""
    changes: dict[str, str] = {}
    for part in text.split(",") if text.strip() else ():
        key, equals, value = part.strip().partition("=")
        if key[:1] not in ("+", "-") or (key[0] == "+") != bool(equals):
            raise InvalidArgument(f"attributes {text[:60]!r}: give +name=value or -name, with ,")
        if key in changes:
            raise InvalidArgument(f"attribute {key[:60]} is given twice")
        changes[key] = value.strip()
    return changes


def changed_attributes(
    current: Mapping[str, str] | None, changes: Mapping[str, str], known: Accepted
) -> dict[str, str]:
    """Attributes after `changes`; `current` is None for a new topic or group.

    A key without a sign sets, like one with `+`. Unknown attributes of another broker may stay.
    """
    found = dict(current or {})
    for key, value in changes.items():
        name = key.lstrip("+-")
        if key.startswith("-"):
            if current is None:
                raise InvalidArgument(f"attribute {name[:60]} cannot be removed: it is not set")
            found.pop(name, None)
            continue
        if current is not None and current.get(name) == value:
            continue
        accepted = known.get(name)
        if accepted is None:
            raise InvalidArgument(f"attribute {name[:60]!r} is unknown")
        if value not in accepted:
            raise InvalidArgument(
                f"attribute {name} cannot be {value[:60]!r}: give {_listed(accepted)}"
            )
        found[name] = value
    return found


def _listed(accepted: Collection[str]) -> str:
    if isinstance(accepted, tuple):
        return f"{accepted[0]} to {accepted[-1]}"
    return " or ".join(sorted(accepted))
