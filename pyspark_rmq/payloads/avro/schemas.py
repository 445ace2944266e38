"""Avro schemas: JSON text to a tree of types. No Arrow.

A named type that is used twice is one object, so the tree is small however often it is used.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from broker_core import errors

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
# Far above what real tables have. Decoders of nested types are recursive.
_DEPTH_MAX: Final = 64
_WEIGHT_MAX: Final = 100_000
# Logical type -> the types that it can annotate; others are ignored, as Avro demands.
_LOGICAL: Final = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
}


class _Refused(ValueError):
    """The schema cannot be used; the text is the reason."""


@dataclasses.dataclass(frozen=True, eq=False)
class AvroType:
    """A type. Which of the attributes it has depends on `kind`."""

    kind: str
    """A primitive type, record, enum, fixed, array, map or union."""
    name: str = ""
    logical: str = ""
    fields: tuple[tuple[str, AvroType], ...] = ()
    inner: tuple[AvroType, ...] = ()
    """Items of an array, values of a map, branches of a union."""
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    takes_bytes: bool = dataclasses.field(init=False)
    depth: int = dataclasses.field(init=False)
    weight: int = dataclasses.field(init=False)
    """The number of types inside, each as often as it is used."""

    def __post_init__(self) -> None:
        below = [*(one for _, one in self.fields), *self.inner]
        if self.kind == "record":
            takes_bytes = any(one.takes_bytes for one in below)
        else:
            takes_bytes = self.kind != "null" and (self.kind != "fixed" or self.size > 0)
        object.__setattr__(self, "takes_bytes", takes_bytes)
        object.__setattr__(self, "depth", 1 + max((one.depth for one in below), default=0))
        object.__setattr__(self, "weight", 1 + sum(one.weight for one in below))
        if self.depth > _DEPTH_MAX:
            raise _Refused(f"it is nested more than {_DEPTH_MAX} levels deep")
        if self.weight > _WEIGHT_MAX:
            raise _Refused(f"it has more than {_WEIGHT_MAX} types")

    @property
    def shown(self) -> str:
        """For errors."""
        if self.kind == "union":
            return f"[{', '.join(branch.shown for branch in self.inner)}]"
        if self.logical == "decimal":
            return f"{self.kind} (decimal({self.precision},{self.scale}))"
        return f"{self.kind} ({self.logical})" if self.logical else self.kind


def parse_schema(text: str, option: str) -> AvroType:
    """The type of a schema. Raises `InvalidArgument` that names the option."""
    try:
        found = _Parser().parse(json.loads(text), "", 0)
    except _Refused as problem:
        reason = str(problem)
    except (ValueError, RecursionError) as problem:
        reason = f"not JSON: {problem}"
    else:
        return found
    raise errors.InvalidArgument(f"option {option} is no Avro schema that can be used: {reason}")


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}
        """None: not complete yet."""

    def parse(self, given: Any, namespace: str, depth: int) -> AvroType:
        if depth > _DEPTH_MAX:
            raise _Refused(f"it is nested more than {_DEPTH_MAX} levels deep")
        if isinstance(given, list):
            return self._union(given, namespace, depth)
        if isinstance(given, str):
            return AvroType(given) if given in PRIMITIVES else self._reference(given, namespace)
        if not isinstance(given, dict) or "type" not in given:
            raise _Refused(f"{_short(given)} is no type")
        kind = given["type"]
        if kind in ("array", "map"):
            word = "items" if kind == "array" else "values"
            inner = self.parse(_needed(given, word), namespace, depth + 1)
            if kind == "array" and not inner.takes_bytes:
                raise _Refused(f"it has an array of {inner.shown}, whose items take no bytes")
            return AvroType(kind, inner=(inner,))
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(given, kind, namespace, depth)
        found = self.parse(kind, namespace, depth + 1)
        return _annotated(found, given) if kind in PRIMITIVES else found

    def _union(self, given: list[Any], namespace: str, depth: int) -> AvroType:
        branches = tuple(self.parse(one, namespace, depth + 1) for one in given)
        kinds = [branch.name or branch.kind for branch in branches]
        if not kinds or len(set(kinds)) != len(kinds) or "union" in kinds:
            raise _Refused(f"{_short(given)} is no union")
        return AvroType("union", inner=branches)

    def _reference(self, name: str, namespace: str) -> AvroType:
        full = _full(name, namespace)
        full = full if full in self._named else name
        if full not in self._named:
            raise _Refused(f"there is no type {name!r:.80}")
        found = self._named[full]
        if found is None:
            raise _Refused(f"record {full} contains itself, and columns of Spark cannot")
        return found

    def _defined(self, given: dict[str, Any], kind: str, namespace: str, depth: int) -> AvroType:
        name = _needed(given, "name")
        outer = given.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(outer, str):
            raise _Refused(f"{_short(given)} has no name")
        full = _full(name, outer)
        if full in self._named or full in PRIMITIVES:
            raise _Refused(f"type {full} is defined twice")
        self._named[full] = None
        if kind == "enum":
            symbols = _needed(given, "symbols")
            if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
                raise _Refused(f"enum {full} has no list of symbols")
            found = AvroType(kind, full, symbols=tuple(symbols))
        elif kind == "fixed":
            size = _needed(given, "size")
            if type(size) is not int or not 0 <= size < 1 << 31:
                raise _Refused(f"fixed {full} has no valid size")
            found = _annotated(AvroType(kind, full, size=size), given)
        else:
            found = AvroType("record", full, fields=self._fields(given, full, depth))
        self._named[full] = found
        return found

    def _fields(
        self, given: dict[str, Any], full: str, depth: int
    ) -> tuple[tuple[str, AvroType], ...]:
        inside = full.rpartition(".")[0]
        fields = _needed(given, "fields")
        if not isinstance(fields, list) or not all(isinstance(one, dict) for one in fields):
            raise _Refused(f"record {full} has no list of fields")
        found: dict[str, AvroType] = {}
        for one in fields:
            name = _needed(one, "name")
            if not isinstance(name, str) or name in found:
                raise _Refused(f"record {full} has a field without a name of its own")
            found[name] = self.parse(_needed(one, "type"), inside, depth + 1)
        return tuple(found.items())


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _needed(given: dict[str, Any], word: str) -> Any:
    if word not in given:
        raise _Refused(f"{_short(given)} has no {word}")
    return given[word]


def _annotated(found: AvroType, given: dict[str, Any]) -> AvroType:
    logical = given.get("logicalType")
    if not isinstance(logical, str) or found.kind not in _LOGICAL.get(logical, ()):
        return found
    if logical != "decimal":
        return dataclasses.replace(found, logical=logical)
    precision, scale = given.get("precision"), given.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision > 0:
        # Avro demands that an invalid annotation is ignored.
        return found
    return dataclasses.replace(found, logical=logical, precision=precision, scale=scale)


def _short(given: Any) -> str:
    shown = json.dumps(given)
    return shown if len(shown) <= 80 else shown[:80] + "…"
