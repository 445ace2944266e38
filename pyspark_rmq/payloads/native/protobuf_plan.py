"""Protobuf messages as steps of a compiled decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from pyspark_rmq.payloads.native import plans
from pyspark_rmq.payloads.native.plans import FlatColumn, PlannedDecoder, Step

_FIELDS: Final = 32
_SYMBOL: Final = 33
_REPEATED: Final = 1
_PRESENCE: Final = 2
_ONEOF_SHIFT: Final = 8
_ONEOFS_MAX: Final = 50
_STEPS_MAX: Final = 100_000
_NO_COLUMN: Final = -1


class _Unplanned(Exception):
    """The message has something that only Python decodes."""


def planned_protobuf(kind: Any, descriptor: Any) -> PlannedDecoder | None:
    """Decodes bodies of a message, which fits `kind`; None if all of them are left to Python.

    The caller has checked that it fits, with `_messages` of `protobuf/bodies.py`.
    """
    columns = plans.flat_columns(kind)
    if columns is None:
        return None
    collected = _Steps(columns)
    try:
        collected.message(descriptor, 0)
    except _Unplanned:
        return None
    return plans.planned(plans.PROTOBUF, kind, steps=collected.steps)


class _Steps:
    def __init__(self, columns: Sequence[FlatColumn]) -> None:
        self._columns = columns
        self.steps: list[Step] = []
        self._skipped: dict[str, int] = {}
        """Messages that are only checked, which may contain themselves."""

    def message(self, descriptor: Any, column: int) -> int:
        """The place of the step with the fields of a message."""
        if column == _NO_COLUMN and descriptor.full_name in self._skipped:
            return self._skipped[descriptor.full_name]
        place = len(self.steps)
        if column == _NO_COLUMN:
            self._skipped[descriptor.full_name] = place
        # The library also reads their extensions, which are not among the fields.
        if descriptor.is_extendable or len(descriptor.oneofs) > _ONEOFS_MAX:
            raise _Unplanned
        self.steps.append(Step(_FIELDS))
        first = len(self.steps)
        fields = list(descriptor.fields)
        self.steps += [Step(field.type, number=field.number) for field in fields]
        if len(self.steps) > _STEPS_MAX:
            raise _Unplanned
        self.steps[place] = Step(_FIELDS, first=first, child_count=len(fields))
        places = self._places(column)
        for at, field in enumerate(fields, first):
            self.steps[at] = self._field(field, places.get(field.name, _NO_COLUMN))
        return place

    def _places(self, column: int) -> dict[str, int]:
        if column == _NO_COLUMN:
            return {}
        flat = self._columns[column]
        return {field.name: flat.first + place for place, field in enumerate(flat.kind)}

    def _field(self, field: Any, column: int) -> Step:
        is_map = field.message_type and field.message_type.GetOptions().map_entry
        if field.is_required or field.type == field.TYPE_GROUP or (is_map and column != _NO_COLUMN):
            # Only the library knows the order of a map.
            raise _Unplanned
        more = _REPEATED * field.is_repeated | _PRESENCE * field.has_presence
        if field.containing_oneof is not None:
            more |= field.containing_oneof.index + 1 << _ONEOF_SHIFT
        first = count = 0
        if field.enum_type and column != _NO_COLUMN:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            first, count = len(self.steps), len(names)
            self.steps += [Step(_SYMBOL, number=one, name=names[one]) for one in names]
        elif field.message_type:
            item = column
            if column != _NO_COLUMN and field.is_repeated:
                item = self._columns[column].first
            if item == _NO_COLUMN or pa.types.is_struct(self._columns[item].kind):
                first, count = self.message(field.message_type, item), 1
        return Step(field.type, column, first, count, field.number, more)
