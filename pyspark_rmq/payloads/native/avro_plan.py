"""Avro schemas as steps of a compiled decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from pyspark_rmq.payloads.avro.schemas import AvroType
from pyspark_rmq.payloads.native import plans
from pyspark_rmq.payloads.native.plans import FlatColumn, PlannedDecoder, Root, Step
from pyspark_rmq.payloads.schema_options import ALWAYS, NONE

_KINDS: Final = (
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum",
    "record", "array", "map", "union",
)  # fmt: skip
_SYMBOL: Final = len(_KINDS)
_UNITS: Final = {"timestamp-millis": 1_000, "local-timestamp-millis": 1_000}
_STEPS_MAX: Final = 100_000
_NO_COLUMN: Final = -1


def planned_avro(
    kind: Any, schemas: Mapping[int | None, AvroType], framing: str
) -> PlannedDecoder | None:
    """Decodes bodies of schemas by id, all of which fit `kind`; None as for `plans.planned`.

    The caller has checked that they fit, with `reader` of `avro/bodies.py`.
    """
    columns = plans.flat_columns(kind)
    if columns is None:
        return None
    collected = _AvroSteps(columns)
    roots = [
        Root(
            -1 if number is None else number, collected.add(one, 0), collected.add(one, _NO_COLUMN)
        )
        for number, one in schemas.items()
    ]
    if collected.are_too_many:
        return None
    if framing == NONE:
        code = plans.NEVER_FRAMED
    elif framing == ALWAYS or None not in schemas:
        code = plans.ALWAYS_FRAMED
    else:
        code = plans.MAY_BE_FRAMED
    return plans.planned(plans.AVRO, kind, steps=collected.steps, roots=roots, framing=code)


class _AvroSteps:
    """Collects the steps of schemas, which read into the same columns."""

    def __init__(self, columns: Sequence[FlatColumn]) -> None:
        self._columns = columns
        self.steps: list[Step] = []

    def add(self, schema: AvroType, column: int) -> int:
        """The place of the step that reads `schema` into a column, or with -1 only checks it."""
        return self._add([(schema, column)])

    @property
    def are_too_many(self) -> bool:
        """Whether a plan of them would take too much memory."""
        return len(self.steps) > _STEPS_MAX

    def _add(self, given: Sequence[tuple[AvroType, int]]) -> int:
        """Steps one after the other; returns the place of the first."""
        first = len(self.steps)
        self.steps += [Step(_KINDS.index(schema.kind), column) for schema, column in given]
        for place, (schema, column) in enumerate(given, first):
            if self.are_too_many:
                break
            self._complete(place, schema, column)
        return first

    def _complete(self, place: int, schema: AvroType, column: int) -> None:
        step = self.steps[place]
        if schema.kind == "enum":
            first = len(self.steps)
            self.steps += [Step(_SYMBOL, name=symbol) for symbol in schema.symbols]
            step = step._replace(first=first, child_count=len(schema.symbols))
        elif inner := self._inner(schema, column):
            step = step._replace(first=self._add(inner), child_count=len(inner))
        elif schema.logical == "decimal":
            step = step._replace(more=schema.scale)
        else:
            step = step._replace(more=_UNITS.get(schema.logical, 1))
        if schema.kind == "fixed":
            step = step._replace(number=schema.size)
        self.steps[place] = step

    def _inner(self, schema: AvroType, column: int) -> list[tuple[AvroType, int]]:
        flat = self._columns[column] if column != _NO_COLUMN else None
        if schema.kind == "union":
            return [(branch, column) for branch in schema.inner]
        if schema.kind == "array":
            return [(schema.inner[0], flat.first if flat else _NO_COLUMN)]
        if schema.kind == "map":
            return [(schema.inner[0], flat.first + 1 if flat else _NO_COLUMN)]
        if schema.kind != "record":
            return []
        places = _places(flat)
        return [(one, places.get(name, _NO_COLUMN)) for name, one in schema.fields]


def _places(flat: FlatColumn | None) -> dict[str, Any]:
    if flat is None or not pa.types.is_struct(flat.kind):
        return {}
    return {field.name: flat.first + place for place, field in enumerate(flat.kind)}
