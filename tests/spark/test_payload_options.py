"""Options of Spark's JSON reader: `from_json` and `valueFormat=json` on the same inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.reader_options.time_texts import TimePatterns, TimeTexts
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

pytest.importorskip("pyspark")

# Pattern -> texts, good and bad.
TIMESTAMPS = {
    "yyyy-MM-dd HH:mm:ss": [
        "2024-05-31 12:00:01", "2024-5-31 12:00:01", "2024-05-31T12:00:01", "2024-02-30 00:00:00",
        "2024-05-31 24:00:00", "2024-05-31 12:00:01.5", " 2024-05-31 12:00:01",
        "9999-12-31 23:59:59",
    ],
    "dd/MM/yyyy HH:mm": ["31/05/2024 12:00", "31/05/24 12:00", "1/5/2024 12:00"],
    "d/M/yyyy H:m:s": ["31/5/2024 1:2:3", "01/05/2024 01:02:03"],
    "yyyyMMdd": ["20240531", "2024053", "202405311"],
    "yyyyMMddHHmmss": ["20240531120001", "2024053112000"],
    "yyyy-MM-dd'T'HH:mm:ss.SSS": [
        "2024-05-31T12:00:01.250", "2024-05-31T12:00:01.2", "2024-05-31T12:00:01.",
        "2024-05-31T12:00:01.2505",
    ],
    "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]": [
        "2024-05-31T12:00:01", "2024-05-31T12:00:01Z", "2024-05-31T12:00:01+02:00",
        "2024-05-31T12:00:01.123456+05:30", "2024-05-31T12:00:01+0200", "2024-05-31T12:00:01z",
    ],
    "yyyy-MM-dd HH:mm:ss X": ["2024-05-31 12:00:01 +02", "2024-05-31 12:00:01 +0230",
                              "2024-05-31 12:00:01 Z", "2024-05-31 12:00:01 +02:00"],
    "yyyy-MM-dd HH:mm:ss XX": ["2024-05-31 12:00:01 +0200", "2024-05-31 12:00:01 Z"],
    "yyyy-MM-dd HH:mm:ss xxx": ["2024-05-31 12:00:01 +00:00", "2024-05-31 12:00:01 Z"],
    "yyyy-MM-dd HH:mm:ss Z": ["2024-05-31 12:00:01 -0500", "2024-05-31 12:00:01 Z"],
    "yyyy-MM-dd HH:mm:ss VV": ["2024-05-31 12:00:01 Europe/Berlin", "2024-05-31 12:00:01 UTC",
                               "2024-05-31 12:00:01 Mars/North"],
    "MMM d, yyyy h:mm:ss a": ["May 31, 2024 1:02:03 PM", "may 31, 2024 12:00:00 am",
                              "May 31, 2024 13:02:03 PM", "Mai 31, 2024 1:02:03 PM"],
    "MMMM dd yyyy": ["May 31 2024", "September 01 2024", "Sep 01 2024"],
    "yy-MM-dd": ["24-05-31", "99-05-31", "2024-05-31"],
    "yyyy-MM": ["2024-05", "2024-13"],
    "HH:mm": ["12:30"],
    "yyyy-MM-dd KK:mm a": ["2024-05-31 00:30 PM", "2024-05-31 12:30 PM"],
    "yyyy-MM-dd kk:mm": ["2024-05-31 24:30", "2024-05-31 00:30"],
    "yyyy 'week''s' dd": ["2024 week's 31"],
}  # fmt: skip
DATES = {
    "dd.MM.yyyy": ["31.05.2024", "31.5.2024", "2024-05-31", "31.05.2024 12"],
    "MM/dd/yy": ["05/31/24"],
    "yyyyMMdd": ["20240531"],
    "d MMM yyyy": ["1 Jan 2024", "31 Feb 2024"],
}
LOCALS = {
    "yyyy-MM-dd HH:mm:ss": ["2024-05-31 12:00:01", "2024-05-31"],
    "yyyy-MM-dd'T'HH:mm[:ss][.SSS]": ["2024-05-31T12:00", "2024-05-31T12:00:01.5"],
    "yyyy-MM-dd HH:mmXXX": ["2024-05-31 12:00Z"],
}
BODIES = [
    '{"a": [1, 2.5, "x", null, true], "b": {"c": "é"}}', "[1]", '"text"', "5", "-0.0", "1e3",
    "12345678901234567890", "123456789.123456789012345678901234567890123", "true",
    '{"b": 1, "a": 2}', "{}", "[]", "NaN", "{", '{"a": 1} x', "null",
]  # fmt: skip
ZONE = "America/New_York"


def compared(spark: Any, kind: str, option: str, patterns: dict[str, list[str]]) -> list[Any]:
    """Where the two differ."""
    from pyspark.sql import functions as F

    shown = {"TIMESTAMP": "unix_micros(v.a)", "DATE": "unix_date(v.a)"}.get(
        kind, "unix_micros(CAST(v.a AS TIMESTAMP))"
    )
    arrow = {"TIMESTAMP": TIMESTAMP, "DATE": pa.date32()}.get(kind, TIMESTAMP_NTZ)
    place = {"timestampFormat": 0, "timestampNTZFormat": 1, "dateFormat": 2}[option]
    told, frames = [], []
    for number, (pattern, texts) in enumerate(patterns.items()):
        rows = [(number, n, f'{{"a": "{text}"}}') for n, text in enumerate(texts)]
        frame = spark.createDataFrame(rows, "p INT, i INT, t STRING")
        parsed = F.from_json("t", f"a {kind}", {option: pattern, "timeZone": ZONE})
        frames.append(frame.select("p", "i", parsed.alias("v")).selectExpr("p", "i", f"{shown} a"))
    while len(frames) > 1:
        frames = [frames[0].union(frames[1]), *frames[2:]]
    theirs = {(row.p, row.i): row.a for row in frames[0].collect()}
    for number, (pattern, texts) in enumerate(patterns.items()):
        given = [""] * 3
        given[place] = pattern
        decoder = JsonDecoder(
            pa.struct([("a", arrow)]), TimeTexts(ZONE, TimePatterns(*given)), keeps_fields=True
        )
        bodies = pa.array([f'{{"a": "{text}"}}'.encode() for text in texts], pa.binary())
        values = decoder.decode(bodies).values.field(0)
        found = values.cast(pa.int32() if kind == "DATE" else pa.int64()).to_pylist()
        for n, text in enumerate(texts):
            if found[n] != theirs[number, n]:
                told.append((pattern, text, found[n], theirs[number, n]))
    return told


def test_patterns_are_those_of_from_json(spark: Any) -> None:
    told = [
        *compared(spark, "TIMESTAMP", "timestampFormat", TIMESTAMPS),
        *compared(spark, "DATE", "dateFormat", DATES),
        *compared(spark, "TIMESTAMP_NTZ", "timestampNTZFormat", LOCALS),
    ]
    assert not told


def test_permissive_is_that_of_from_json(spark: Any) -> None:
    """Bad fields are null and the others are kept, also inside of structs and arrays."""
    from pyspark.sql import functions as F

    texts = [
        '{"a": "x", "l": [1], "s": {"x": true, "y": "t"}}', '{"a": 1, "l": [1, "x"]}', "{",
        '{"a": 2}', '{"a": 1, "ls": [{"x": 1}, {"x": "q", "y": "k"}]}', '{"a": 1, "s": 5}',
        '{"a": 1, "m": {"k": 1, "q": "x"}}', '{"a": 1, "l": {}}', '{"a": 1, "ls": [5]}', "5",
    ]  # fmt: skip
    inner = "STRUCT<x: INT, y: STRING>"
    ddl = f"a INT, l ARRAY<INT>, s {inner}, ls ARRAY<{inner}>, m MAP<STRING, INT>"
    rows = spark.createDataFrame(list(enumerate(texts)), "i INT, t STRING")
    parsed = rows.select("i", F.from_json("t", ddl).alias("v")).orderBy("i")
    theirs = [row.asDict(recursive=True)["v"] for row in parsed.collect()]
    of = pa.struct([("x", pa.int32()), ("y", pa.string())])
    kind = pa.struct(
        [
            ("a", pa.int32()), ("l", pa.list_(pa.int32())), ("s", of), ("ls", pa.list_(of)),
            ("m", pa.map_(pa.string(), pa.int32())),
        ]
    )  # fmt: skip
    decoder = JsonDecoder(kind, keeps_fields=True)
    decoded = decoder.decode(pa.array([text.encode() for text in texts], pa.binary()))
    assert decoded.values.to_pylist(maps_as_pydicts="lossy") == theirs


def plain(text: str) -> str:
    return json.dumps(json.loads(text, parse_int=float), sort_keys=True)


def test_variants_are_those_of_parse_json(
    spark: Any, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    """Read as VARIANT, written by the sink, and read again."""
    from pyspark.sql import functions as F

    topic, target = new_topic(1), new_topic(1)
    broker.produce(topic, BODIES)
    given = {**broker.options, "valueFormat": "json"}
    reader = spark.read.format("rmq").options(**given, mode="PERMISSIVE")
    frame = reader.schema("offset LONG, value VARIANT, badReason STRING").load(topic)
    rows = spark.createDataFrame(list(enumerate(BODIES)), "i LONG, t STRING")
    both = frame.join(rows, F.expr("offset = i")).selectExpr(
        "t", "to_json(value) AS ours", "to_json(try_parse_json(t)) AS theirs", "badReason"
    )
    found = {row.t: row for row in both.collect()}
    # Spark ignores what follows a value, and a body that is null is a bad record.
    assert {t for t, row in found.items() if row.ours != row.theirs} == {'{"a": 1} x', "null"}
    assert {t for t, row in found.items() if row.badReason} == {"NaN", "{", '{"a": 1} x', "null"}
    good = frame.where("badReason IS NULL")
    writer = good.selectExpr("value").write.format("rmq").options(**given)
    writer.mode("append").save(target)
    again = reader.schema("value VARIANT").load(target).selectExpr("to_json(value) AS j")
    # A number may be a decimal now that was a double before.
    expected = [plain(row.ours) for row in found.values() if not row.badReason]
    assert sorted(plain(row.j) for row in again.collect()) == sorted(expected)
    inner = (
        reader.options(flattenValue="true").schema("a VARIANT, b STRUCT<c: VARIANT>").load(topic)
    )
    [row] = inner.where("b.c IS NOT NULL").selectExpr("to_json(a) a", "to_json(b.c) c").collect()
    assert (row.a, row.c) == ('[1,2.5,"x",null,true]', '"é"')
