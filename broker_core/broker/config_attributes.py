"""Attributes of topics and groups, which tools of 5.x set: `+message.type=FIFO,-queue.type`.

Pure. Only those are taken whose meaning this broker keeps: a topic that asks for compaction must
not be made without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from broker_core.errors import InvalidArgument

# Attribute -> the values that can be kept.
Accepted = Mapping[str, Collection[str]]
TOPIC_ATTRIBUTES: Final[Accepted] = {
    # Says what clients mean to send; the broker stores every kind.
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
}
GROUP_ATTRIBUTES: Final[Accepted] = {
    # Weighs queues for POP, which pulling members do not notice on any broker.
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
    """The attributes of something after `changes`; `current` is None for something new.

    A key without a sign sets, as one with `+` does. What another broker gave it may stay.
    """
    found = dict(current or {})
    for key, value in changes.items():
        name = key.lstrip("+-")
        if key.startswith("-"):
            if current is None:
                raise InvalidArgument(f"attribute {name[:60]} cannot be removed from what is new")
            found.pop(name, None)
            continue
        if current is not None and current.get(name) == value:
            continue
        accepted = known.get(name)
        if accepted is None:
            raise InvalidArgument(f"attribute {name[:60]!r} is not known")
        if value not in accepted:
            raise InvalidArgument(
                f"attribute {name} cannot be {value[:60]!r}: give {_told(accepted)}"
            )
        found[name] = value
    return found


def _told(accepted: Collection[str]) -> str:
    if isinstance(accepted, tuple):
        return f"{accepted[0]} to {accepted[-1]}"
    return " or ".join(sorted(accepted))
