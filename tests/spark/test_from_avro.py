"""`valueFormat=avro` beside Spark's `from_avro`, on the same schemas and bodies.

Where they differ is listed here and in `docs/payloads.md`. Spark gets no body that names a length
of gigabytes: `from_avro` allocates it, which ends the JVM of all these tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest

from broker_core.errors import InvalidArgument
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.columns import avro_column
from pyspark_rmq.payloads.inference.described import ddl_of
from pyspark_rmq.payloads.nested_arrays import with_leaves
from pyspark_rmq.payloads.schema_options import NONE
from pyspark_rmq.payloads.spark_types import arrow_type
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.spark_avro import spark_avro_jar
from tests.pyspark_rmq.payloads.avro.typed_schemas import given
from tests.spark.avro_corpus import CASES, body, number, record, sized, whole

pytest.importorskip("pyspark")

PERMISSIVE: Final = "PERMISSIVE"
FAILFAST: Final = "FAILFAST"
ERROR: Final = "ERROR"
BAD: Final = "BAD"
# Case -> our type and that of `from_avro`.
TYPES: Final = {
    "null": (ERROR, "void"),
    "empty record": (ERROR, "struct<>"),
    "union of null alone": (ERROR, "struct<>"),
    "union of int and string": (ERROR, "struct<member0:int,member1:string>"),
    "union of null, string and record": (
        ERROR, "struct<member0:string,member1:struct<n:int,s:string>>",
    ),
    "time-micros": ("bigint", "time(6)"),
}  # fmt: skip
# Types of Spark 4.3 and later without an Arrow type: not read here.
NANOS: Final = ("timestamp-nanos", "local-timestamp-nanos")
# (case, value) -> what `from_avro` returns for a body that is a bad record here.
VALUES: Final[dict[tuple[str, bytes], Any]] = {
    ("boolean", b"\x02"): False,
    ("boolean", b"\xff"): False,
    ("int", number(1 << 31)): 0,
    ("enum", number(1 << 33)): b"S",
    ("string", sized(b"a\xff")): b"a\xff",
    ("string", sized(b"\xed\xa0\x80")): b"\xed\xa0\x80",
    ("union of null and string", b"\x02" + sized(b"a\xff")): b"a\xff",
    ("map", b"\x02" + sized(b"a\xff") + b"\x08\0"): [(b"a\xff", 4)],
}


@pytest.fixture(scope="module")
def avro_spark(spark: Any) -> Any:
    """The session with `from_avro`."""
    try:
        jar = spark_avro_jar()
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    spark.sql(f"ADD JAR '{jar}'")
    return spark


def from_avro(column: str, schema: Any, mode: str = PERMISSIVE) -> str:
    return f"from_avro({column}, '{json.dumps(schema)}', map('mode', '{mode}'))"


def our_type(schema: Any) -> Any:
    """The type of the column `value`, or the error."""
    try:
        return avro_column(given(schema, NONE))
    except InvalidArgument:
        return ERROR


def comparable(kind: Any) -> Any:
    """The type with times as numbers, and texts as bytes, which may be invalid."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, comparable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(comparable(kind.key_type), comparable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", comparable(kind.value_type)))
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def values_of(array: Any) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    plain = with_leaves(array, comparable(array.type), lambda leaf, kind: leaf.cast(kind))
    found: list[Any] = plain.to_pylist()
    return found


def theirs(
    spark: Any, bodies: Mapping[str, Sequence[bytes]], schemas: Mapping[str, Any], mode: str
) -> dict[str, list[Any]]:
    """The values of the bodies of each case, in one query."""
    rows = max(map(len, bodies.values()))
    columns = {
        f"c{place}": pa.array([*found, *found[:1] * (rows - len(found))], pa.binary())
        for place, found in enumerate(bodies.values())
    }
    frame = spark.createDataFrame(pa.table(columns)).coalesce(1)
    decoded = frame.selectExpr(
        *(f"{from_avro(f'c{place}', schemas[name], mode)} AS c{place}"
          for place, name in enumerate(bodies))
    )  # fmt: skip
    # Arrow takes no struct that may be null and has fields that may not.
    nullable = (
        f"CAST({field.name} AS {field.dataType.simpleString()})" for field in decoded.schema
    )
    table = decoded.selectExpr(*nullable).toArrow()
    return {
        name: values_of(table.column(place))[: len(found)]
        for place, (name, found) in enumerate(bodies.items())
    }


def ours(schema: Any, bodies: Sequence[bytes]) -> list[Any]:
    """The same of our decoder; BAD for a bad record."""
    decoder = AvroDecoder(arrow_type(our_type(schema), "value"), given(schema, NONE))
    array = pa.array(bodies, pa.binary())
    decoded = decoder.decode(array)
    found = values_of(decoded.values)
    assert repr(found) == repr(values_of(decoder.by_row(array).values))
    for row, _ in decoded.bad:
        found[row] = BAD
    return found


def compared() -> dict[str, Any]:
    """The schemas that both have the same column for."""
    return {
        name: whole(case.schema)
        for name, case in CASES.items()
        if name not in TYPES and name not in NANOS and our_type(whole(case.schema)) != ERROR
    }


def test_columns_are_those_of_from_avro(avro_spark: Any) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    empty = avro_spark.createDataFrame([], "v BINARY")
    told = []
    for name, case in CASES.items():
        schema = whole(case.schema)
        kind = our_type(schema)
        if kind != ERROR:
            [field, _] = StructType.fromDDL(f"value {ddl_of(kind)}")["value"].dataType
            kind = field.dataType.simpleString()
        if name in NANOS:
            assert kind == "bigint"
            continue
        try:
            frame = empty.selectExpr(f"{from_avro('v', schema)} AS v")
            their_kind = frame.schema["v"].dataType["x"].dataType.simpleString()
        except (Py4JError, PySparkException) as problem:
            assert "Avro" in str(problem) or "DECIMAL" in str(problem), (name, str(problem))
            their_kind = ERROR
        if (kind, their_kind) != TYPES.get(name, (their_kind, their_kind)):
            told.append((name, kind, their_kind))
    assert not told


def test_values_are_those_of_from_avro(avro_spark: Any) -> None:
    """Good bodies, each beginning of them, ones with a byte more, and damaged ones."""
    schemas = compared()
    assert len(schemas) >= 35
    good = {name: [body(value) for value in CASES[name].good] for name in schemas}
    strict = theirs(avro_spark, good, schemas, FAILFAST)
    for name, schema in schemas.items():
        found = ours(schema, good[name])
        assert repr(found) == repr(strict[name]), name
        assert BAD not in found and all(row["end"] == 7 for row in found), name

    short = {name: sorted({one[:size] for one in bodies for size in range(len(one))})
             for name, bodies in good.items()}  # fmt: skip
    # One byte more: `from_avro` does not look at it.
    longer = {name: [one + b"\0" for one in bodies] for name, bodies in good.items()}
    damaged = {name: [body(value) for value in CASES[name].damaged] for name in schemas}
    every = {name: [*short[name], *damaged[name], *longer[name]] for name in schemas}
    lenient = theirs(avro_spark, every, schemas, PERMISSIVE)
    taken = {}
    for name, schema in schemas.items():
        assert set(ours(schema, every[name])) == {BAD}, name
        rows = iter(lenient[name])
        assert all(next(rows)["end"] is None for _ in short[name]), name
        for value in CASES[name].damaged:
            row = next(rows)
            if row["end"] is not None:
                taken[name, value] = row["x"]
        assert repr(list(rows)) == repr(strict[name]), name
    assert taken == VALUES


WHOLE: Final = {
    "map": ({"type": "map", "values": "int"}, [b"\0", b"\x02\x02k\x08\0"], [b"\x02\x02k\x08"]),
    "array": ({"type": "array", "items": "int"}, [b"\0", b"\x04\x02\x04\0"], [b"\x04\x02\x04"]),
    "record": (record("R", n="int"), [b"\x08"], [b"\x80"]),
    "union": (["null", record("R", n="int")], [b"\x02\x08"], [b"\x02", b"\x04\x08", b"\0"]),
}


def test_whole_bodies(avro_spark: Any) -> None:
    """Other bodies than records. `from_avro` reads no union as the whole body."""
    bodies = {name: [*good, *bad, b""] for name, (_, good, bad) in WHOLE.items()}
    schemas = {name: schema for name, (schema, _, _) in WHOLE.items()}
    found = theirs(avro_spark, bodies, schemas, PERMISSIVE)
    for name, (schema, good, bad) in WHOLE.items():
        count = len(good)
        values = found[name][:count]
        assert ours(schema, good) == (values if name != "union" else [{"n": 4}]), name
        assert set(ours(schema, [*bad, b""])) == {BAD}, name
        assert all(row in (None, {"n": None}) for row in found[name][count:]), name
    assert set(map(repr, found["union"])) == {"{'n': None}"}
    union = {"union": bodies["union"][:1]}
    with pytest.raises(Exception, match="FAILFAST"):
        theirs(avro_spark, union, schemas, FAILFAST)


def test_failfast_fails_where_permissive_has_nulls(avro_spark: Any) -> None:
    for name in ("string", "union of string and null", "decimal", "boolean"):
        case = CASES[name]
        bodies = {name: [body(case.good[0]), body(case.damaged[-1])]}
        schemas = {name: whole(case.schema)}
        lenient = theirs(avro_spark, bodies, schemas, PERMISSIVE)
        if (name, case.damaged[-1]) in VALUES:
            assert theirs(avro_spark, bodies, schemas, FAILFAST) == lenient
            continue
        assert lenient[name][1] == {"x": None, "end": None}
        with pytest.raises(Exception, match="FAILFAST"):
            theirs(avro_spark, bodies, schemas, FAILFAST)


def named_once(schema: Any, seen: set[str]) -> Any:
    """The schema with a name where it defines a type again."""
    if isinstance(schema, list):
        return [named_once(one, seen) for one in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema["name"] if schema["type"] in ("record", "enum", "fixed") else ""
    if name in seen:
        return name
    seen |= {name} - {""}
    found = {**schema}
    for inside in ("items", "values"):
        if inside in schema:
            found[inside] = named_once(schema[inside], seen)
    if "fields" in schema:
        found["fields"] = [
            {**field, "type": named_once(field["type"], seen)} for field in schema["fields"]
        ]
    return found


def test_the_source_reads_what_from_avro_reads(
    avro_spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    """All types in one record, from a topic, without a schema of columns."""
    names = list(compared())
    schema = named_once(record("All", **{f"f{n}": CASES[name].schema for n, name in
                                         enumerate(names)}), set())  # fmt: skip
    bodies = [
        b"".join(CASES[name].good[row % len(CASES[name].good)] for name in names)
        for row in range(12)
    ]
    topic = new_topic(1)
    broker.produce(topic, [*bodies, bodies[0][:-1]])
    reader = avro_spark.read.format("rmq").options(**broker.options)
    plain = reader.load(topic).selectExpr("offset", f"{from_avro('value', schema)} AS value")
    typed = reader.options(
        **{"valueFormat": "avro", "value.schema": json.dumps(schema), "badRecords": "null",
           "value.schema.registry.framing": NONE}
    ).load(topic).select("offset", "value")  # fmt: skip
    assert typed.schema["value"].dataType.simpleString() == (
        plain.schema["value"].dataType.simpleString()
    )
    ours_, theirs_ = (
        values_of(frame.toArrow().sort_by("offset").column("value")) for frame in (typed, plain)
    )
    assert len(ours_) == 13 and repr(ours_[:12]) == repr(theirs_[:12])
    assert ours_[12] is None and set(theirs_[12].values()) == {None}
