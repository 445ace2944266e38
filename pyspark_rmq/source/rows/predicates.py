"""Conditions on columns, from option `where` or Spark's filters, and the ranges they leave.

    timestamp >= '2024-05-31T12:00:00Z' AND tags IN ('A', 'B') AND partition = 3

A condition compares a column with a literal; all of them hold together (AND). Pure.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker_core import MessageQueue, errors
from pyspark_rmq import columns, option_values

COMPARABLE: Final[Mapping[str, type]] = {
    "key": str,
    "topic": str,
    "tags": str,
    "broker": str,
    "msgId": str,
    "partition": int,
    "offset": int,
    "reconsumeTimes": int,
    "timestamp": datetime.datetime,
    "bornTimestamp": datetime.datetime,
}
_ACCEPTED: Final = (
    "conditions such as timestamp >= '2024-05-31T12:00:00Z' AND tags IN ('A','B') AND key = 'k1',"
    f" on the columns {', '.join(COMPARABLE)}, with =, <, <=, >, >=, IN"
)
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<op><=|>=|==|=|<|>)"
    r"|(?P<mark>[(),])|(?P<word>`?[A-Za-z_]\w*`?))"
)
NO_LIMIT: Final = (1 << 63) - 1


class Predicate(NamedTuple):
    """`column op value`; for `in` the value is a tuple."""

    column: str
    op: str
    value: Any


class Reach(NamedTuple):
    """Offsets and store times `[from, until)` that conditions leave of a queue."""

    offset_from: int = 0
    offset_until: int = NO_LIMIT
    time_from_ms: int = 0
    time_until_ms: int = NO_LIMIT


def parse_where(option: str, text: str, naming: str = columns.PLAIN) -> tuple[Predicate, ...]:
    """Raises `InvalidConfig` for anything but conditions joined by AND."""
    try:
        return tuple(_Parser(text, naming).conditions())
    except _Malformed as problem:
        raise errors.InvalidConfig(option, text, f"{problem}; give {_ACCEPTED}") from None


def allows_queue(predicates: Iterable[Predicate], queue: MessageQueue) -> bool:
    """Whether rows of a queue can meet the conditions."""
    facts = {"topic": queue.topic, "broker": queue.broker_name, "partition": queue.queue_id}
    return all(holds(p, facts[p.column]) for p in predicates if p.column in facts)


def reach_of(predicates: Iterable[Predicate]) -> Reach:
    """Offsets and times that rows may have; conditions on other columns are ignored."""
    reach = Reach()
    for column, op, value in predicates:
        if op == "in":
            continue
        if column == "offset":
            low, until = _bounds(op, value, 1)
            reach = reach._replace(
                offset_from=max(reach.offset_from, low),
                offset_until=min(reach.offset_until, until),
            )
        elif column == "timestamp":
            low, until = _bounds(op, _floor_ms(value), 1)
            if op == "<" and value > _at_ms(_floor_ms(value)):
                # Stored times are whole milliseconds: this one is before the value, too.
                until += 1
            reach = reach._replace(
                time_from_ms=max(reach.time_from_ms, low),
                time_until_ms=min(reach.time_until_ms, until),
            )
    return reach


def only_texts(predicates: Iterable[Predicate], column: str) -> tuple[str, ...] | None:
    """The texts that a column may have, if conditions list them."""
    found: tuple[str, ...] | None = None
    for predicate in predicates:
        if predicate.column != column or predicate.op not in ("=", "in"):
            continue
        values = predicate.value if predicate.op == "in" else (predicate.value,)
        found = values if found is None else tuple(v for v in found if v in values)
    return found


def holds(predicate: Predicate, value: Any) -> bool:
    """Whether one value meets a condition; null meets none."""
    if value is None:
        return False
    op, wanted = predicate.op, predicate.value
    if op == "in":
        return value in wanted
    results = {
        "=": value == wanted,
        "<": value < wanted,
        "<=": value <= wanted,
        ">": value > wanted,
        ">=": value >= wanted,
    }
    return bool(results[op])


def from_filters(filters: Iterable[Any], naming: str) -> tuple[Predicate, ...]:
    """Spark's filters as conditions; other filters are skipped, because Spark applies all."""
    found = []
    ops = {
        "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">",
        "GreaterThanOrEqual": ">=", "In": "in",
    }  # fmt: skip
    for each in filters:
        op = ops.get(type(each).__name__)
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if op is None or len(attribute) != 1:
            continue
        name = columns.plain_name(attribute[0], naming)
        values = tuple(each.value) if op == "in" else (each.value,)
        if (
            name is not None
            and name in COMPARABLE
            and all(_is_kind(COMPARABLE[name], value) for value in values)
        ):
            found.append(Predicate(name, op, values if op == "in" else values[0]))
    return tuple(found)


def _is_kind(kind: type, value: Any) -> bool:
    if kind is datetime.datetime:
        # Without a zone it is ambiguous.
        return isinstance(value, datetime.datetime) and value.tzinfo is not None
    return type(value) is kind


def _bounds(op: str, value: int, step: int) -> tuple[int, int]:
    return {
        "=": (value, value + step),
        "<": (0, value),
        "<=": (0, value + step),
        ">": (value + step, NO_LIMIT),
        ">=": (value, NO_LIMIT),
    }[op]


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MS: Final = datetime.timedelta(milliseconds=1)


def _floor_ms(value: datetime.datetime) -> int:
    return (value - _EPOCH) // _MS


def _at_ms(ms: int) -> datetime.datetime:
    return _EPOCH + ms * _MS


class _Malformed(Exception):
    """What is wrong with the text."""


class _Parser:
    def __init__(self, text: str, naming: str) -> None:
        self._naming = naming
        self._tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise _Malformed(f"cannot be read from {text[at : at + 20]!r} on")
            assert match.lastgroup is not None
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()

    def conditions(self) -> list[Predicate]:
        found = [self._condition()]
        while self._tokens:
            kind, text = self._take()
            if kind != "word" or text.upper() != "AND":
                raise _Malformed(f"has {text!r} where AND is expected")
            found.append(self._condition())
        return found

    def _condition(self) -> Predicate:
        kind, text = self._take()
        name = columns.plain_name(text.strip("`"), self._naming) if kind == "word" else None
        if name is None or name not in COMPARABLE:
            raise _Malformed(f"has {text!r} where a column is expected")
        kind, text = self._take()
        if kind == "op":
            return Predicate(name, "=" if text == "==" else text, self._literal(name))
        if text.upper() != "IN":
            raise _Malformed(f"has {text!r} where a comparison is expected")
        self._expect("(")
        values = [self._literal(name)]
        while (mark := self._take()[1]) == ",":
            values.append(self._literal(name))
        if mark != ")":
            raise _Malformed(f"has {mark!r} where a ) is expected")
        return Predicate(name, "in", tuple(values))

    def _literal(self, name: str) -> Any:
        kind, text = self._take()
        wanted = COMPARABLE[name]
        if kind == "number" and wanted is int:
            return int(text)
        if kind == "text" and wanted is str:
            return text[1:-1].replace("''", "'")
        if wanted is datetime.datetime and kind in ("text", "number"):
            try:
                return _at_ms(option_values.time_ms("where", text.strip("'")))
            except errors.InvalidConfig:
                raise _Malformed(f"has {text} where a time is expected") from None
        raise _Malformed(f"compares {name} with {text}")

    def _expect(self, mark: str) -> None:
        if self._take()[1] != mark:
            raise _Malformed(f"lacks a {mark}")

    def _take(self) -> tuple[str, str]:
        if not self._tokens:
            raise _Malformed("ends too early")
        return self._tokens.pop(0)
