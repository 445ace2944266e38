"""Unknown property names, with the most similar known one as a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker_core.broker.settings.broker_properties import (
    BROKER_PROPERTIES,
    FIXED_PROPERTIES,
    IGNORED_PROPERTIES,
    OTHER_NAMES,
    STORE_PATHS,
)
from broker_core.config import PROPERTY_NAMES
from broker_core.errors import InvalidArgument, explained


def _known() -> Iterator[str]:
    yield from BROKER_PROPERTIES
    yield from PROPERTY_NAMES
    yield from STORE_PATHS
    yield from FIXED_PROPERTIES
    yield from IGNORED_PROPERTIES
    yield from OTHER_NAMES


def unknown_warnings(keys: Iterable[str]) -> list[str]:
    """A warning for each unknown property."""
    return [f"unknown property {key:.100}{_nearest(key) or ' is ignored'}" for key in keys]


def refuse_unknown(properties: Mapping[str, str], argument: str) -> None:
    """Raise `InvalidArgument` for an unknown property in `argument`."""
    known = frozenset(_known())
    for key in properties:
        if key not in known:
            hint = _nearest(key) or ": docs/broker-configuration.md has all of them"
            text = f"{argument}: unknown property {key!r:.100}{hint}"
            raise InvalidArgument(explained(text, "unknown-broker-property"))


def _nearest(key: str) -> str:
    # Imported on demand, to keep the start short.
    import difflib

    by_lower_case = {name.lower(): name for name in _known()}
    near = difflib.get_close_matches(key.lower()[:100], by_lower_case, n=1)
    return f": did you mean {by_lower_case[near[0]]}?" if near else ""
