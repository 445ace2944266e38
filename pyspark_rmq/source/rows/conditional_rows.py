"""Batches of the rows that meet conditions, which may use columns that are not read."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core import MessageQueue
from pyspark_rmq.columns import ChosenColumn, column_of
from pyspark_rmq.payloads.bad_records import UNREADABLE
from pyspark_rmq.source.offsets.stream_position import Repeats
from pyspark_rmq.source.rows.message_batches import BatchMaker, Records, arrow_schema
from pyspark_rmq.source.rows.predicates import Predicate

_COMPARE: Final = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class RowMaker(Protocol):
    """Makes batches of runs."""

    def batch(self, run: Records, queue: MessageQueue) -> Any:
        """The rows of a run that are wanted."""


class ConditionalRows:
    """A `BatchMaker` that filters its rows."""

    def __init__(
        self,
        columns: Sequence[ChosenColumn],
        predicates: Sequence[Predicate],
        naming: str,
        tags: Sequence[str] = (),
        include_system_properties: bool = False,
        repeats: Repeats = MappingProxyType({}),
        keeps_unreadable: bool = False,
    ) -> None:
        names = [column.name for column in columns]
        needed = {p.column for p in predicates} | ({"offset"} if repeats else set())
        more = sorted(needed - set(names))
        self._repeats = repeats
        self._predicates = predicates
        self._places = {name: place for place, name in enumerate((*names, *more))}
        self._schema = arrow_schema(columns)
        self._maker = BatchMaker(
            (*columns, *(column_of(name, naming) for name in more)),
            tags=tags,
            include_system_properties=include_system_properties,
            keeps_unreadable=keeps_unreadable,
        )

    def batch(self, run: Records, queue: MessageQueue) -> Any:
        """The rows that meet all conditions: chosen columns, and `UNREADABLE` if it is there."""
        made = self._maker.batch(run, queue)
        mask = self._without_repeats(made, queue)
        if not self._predicates and mask is None:
            return self._chosen(made)
        for column, op, value in self._predicates:
            array = made.column(self._places[column])
            if op == "in":
                met = pc.is_in(array, value_set=pa.array(list(value), array.type))
            else:
                met = _COMPARE[op](array, pa.scalar(value, array.type))
            mask = met if mask is None else pc.and_(mask, met)
        # A comparison with null is null, which `filter` drops.
        return self._chosen(made.filter(mask))

    def _without_repeats(self, made: Any, queue: MessageQueue) -> Any:
        """Mask of rows that are not copies; None for all."""
        pairs = self._repeats.get(queue)
        if not pairs or not made.num_rows:
            return None
        starts, ends = np.array(pairs, np.int64).T
        offsets = made.column(self._places["offset"]).to_numpy()
        place = np.searchsorted(starts, offsets, "right") - 1
        return pa.array((place < 0) | (offsets >= ends[place]))

    def _chosen(self, made: Any) -> Any:
        if made.num_columns == len(self._schema):
            return made
        arrays = [made.column(place) for place in range(len(self._schema))]
        schema = self._schema
        if made.schema.names[-1] == UNREADABLE:
            arrays.append(made.column(made.num_columns - 1))
            schema = schema.append(made.schema.field(made.num_columns - 1))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
