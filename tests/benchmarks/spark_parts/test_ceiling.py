"""The null source and sink: the same help and the same columns as those they are compared with."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from benchmarks.spark_parts import ceiling
from pyspark_rmq import tcp_quickack

_JSON_NAMES = {"int": "integer", "bigint": "long"}


def schema_of(text: str) -> StructType:
    schema = StructType()
    for field in text.split(", "):
        name, _, kind = field.partition(" ")
        schema.add(name, _JSON_NAMES.get(kind.lower(), kind.lower()))
    return schema


VALUE = schema_of(ceiling.VALUE)


@pytest.mark.parametrize(
    "made",
    [
        ceiling.NullReader({}, VALUE),
        ceiling.NullStreamReader({}, VALUE),
        ceiling.NullWriter(),
        ceiling.NullStreamWriter(),
    ],
    ids=lambda made: type(made).__name__,
)
def test_input_is_acknowledged_at_once_as_ours_is(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(tcp_quickack, "acknowledge_input", lambda: calls.append(None))
    # A copy is rebuilt by the same calls as an object that a worker gets.
    again = copy.copy(made)
    assert len(calls) == 1
    assert vars(again) == vars(made)


@pytest.mark.parametrize("text", ceiling.SCHEMAS.values())
def test_rows_have_the_schema_that_is_promised(text: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = schema_of(text)
    batch = ceiling.prepared_batch(100, schema.names)
    assert batch.schema.names == schema.names
    assert batch.schema.types == to_arrow_schema(schema, timezone="UTC").types
    reader = ceiling.NullReader({"rows": "120001", "partitions": "2"}, schema)
    counts = [sum(b.num_rows for b in reader.read(part)) for part in reader.partitions()]
    assert counts == [60_000, 60_001]
