"""Zones and patterns together, as the JSON decoder uses them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_rmq.payloads.json_columns import JsonDecoder
from pyspark_rmq.payloads.reader_options.time_texts import TimePatterns, TimeTexts
from pyspark_rmq.payloads.spark_types import TIMESTAMP, TIMESTAMP_NTZ

KIND = pa.struct([("at", TIMESTAMP), ("local", TIMESTAMP_NTZ), ("day", pa.date32())])
NOON = 1_717_156_800_000_000


@pytest.mark.parametrize(
    ("times", "body"),
    [
        (
            TimeTexts("Europe/Berlin"),
            b'{"at":"2024-05-31 14:00:00","local":"2024-05-31T12:00:00","day":"2024-05-31"}',
        ),
        (
            TimeTexts("UTC", TimePatterns("dd.MM.yyyy HH:mm", "yyyyMMdd HH", "M/d/yyyy")),
            b'{"at":"31.05.2024 12:00","local":"20240531 12","day":"5/31/2024"}',
        ),
    ],
)
def test_columns_and_rows_agree(times: TimeTexts, body: bytes) -> None:
    decoder = JsonDecoder(KIND, times)
    bodies = pa.array([body, b'{"at":null}'], pa.binary())
    columns = decoder.by_column(bodies)
    assert columns is not None, "not body by body"
    assert columns.equals(decoder.by_row(bodies).values)
    found = [columns.field(place).cast(kind)[0].as_py() for place, kind in enumerate(
        (pa.int64(), pa.int64(), pa.int32())
    )]  # fmt: skip
    assert found == [NOON, NOON, 19_874]


def test_a_pattern_is_the_only_form() -> None:
    decoder = JsonDecoder(KIND, TimeTexts("UTC", TimePatterns(timestamp="dd.MM.yyyy")))
    bodies = pa.array([b'{"at":"2024-05-31"}', b'{"at":60}'], pa.binary())
    decoded = decoder.decode(bodies)
    assert [bad.reason for bad in decoded.bad] == [
        'value.at is "2024-05-31", which is not TIMESTAMP'
    ]
    # Numbers are seconds, as in Spark.
    assert decoded.values.field(0).cast(pa.int64())[1].as_py() == 60_000_000
