"""Bodies and schemas that are wrong in every way: a clear answer, never a crash or a wrong value.

Schemas that do not parse, unknown messages and schemas that contain themselves are in the tests of
their formats.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.bad_records import Decoder
from pyspark_rmq.payloads.formats import PayloadOptions
from pyspark_rmq.payloads.protobuf.messages import message_class
from pyspark_rmq.payloads.read_columns import PayloadColumn
from pyspark_rmq.payloads.typed_rows import decoder_of
from tests.pyspark_rmq.payloads.protobuf import shop_messages

KIND = pa.struct([("id", pa.string()), ("n", pa.int32())])
CHANGE = pa.struct([("op", pa.string()), ("after", KIND)])
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}],
}
SIZE = 10 << 20


@functools.cache
def decoders() -> dict[str, Decoder]:
    """A decoder of each format, made as a task makes it: the files are gone by then."""
    with tempfile.TemporaryDirectory() as root:
        parsed = parsed_options(Path(root))
    found = {}
    for name, options in parsed.items():
        kind = CHANGE if "-" in name else KIND
        decoder = decoder_of([PayloadColumn("value", "value", kind)], options)
        assert decoder is not None
        found[name] = decoder
    return found


def parsed_options(root: Path) -> dict[str, PayloadOptions]:
    avro, protobuf = root / "r.avsc", root / "shop.desc"
    avro.write_text(json.dumps(AVRO))
    protobuf.write_bytes(shop_messages.descriptor_set())
    message = {"value.schema.file": str(protobuf), "value.message.name": "shop.Flat"}
    more_options: dict[str, dict[str, str]] = {
        "json": {},
        "msgpack": {},
        "avro": {"value.schema.file": str(avro)},
        "protobuf": message,
        "canal-json": {},
        "debezium-json": {},
    }
    texts = {"rmq.namesrv.addr": "h:1", "subscribe": "t"}
    return {
        name: SourceOptions.parse({**texts, "valueFormat": name, **more}).payload
        for name, more in more_options.items()
    }


def bodies(size: int) -> dict[str, bytes]:
    """A good body of each format with a text of that size."""
    text = "x" * size
    flat = message_class(shop_messages.given("shop.Flat"))
    row = {"id": text, "n": 1}
    zigzag = bytearray()
    rest = size << 1
    while rest > 0x7F:
        zigzag.append(rest & 0x7F | 0x80)
        rest >>= 7
    zigzag.append(rest)
    return {
        "json": json.dumps(row).encode(),
        "msgpack": msgpack.packb(row),
        "avro": bytes(zigzag) + text.encode() + b"\2",
        "protobuf": flat(id=text, n=1).SerializeToString(),
        "canal-json": json.dumps({"type": "INSERT", "data": [{"id": text, "n": "1"}]}).encode(),
        "debezium-json": json.dumps({"op": "c", "after": row}).encode(),
    }


FORMATS = sorted(bodies(1))


@pytest.mark.parametrize("name", FORMATS)
def test_bodies_of_ten_megabytes(name: str) -> None:
    body = bodies(SIZE)[name]
    decoded = decoders()[name].decode(pa.array([body, os.urandom(SIZE), body[:-1]], pa.binary()))
    value = decoded.values[0].as_py()
    row = value["after"] if "-" in name else value
    assert len(row["id"]) == SIZE and row["n"] == 1
    # Random bytes may be a Protobuf message with unknown fields only, but none of this size.
    assert [bad.row for bad in decoded.bad] == [1, 2]


@pytest.mark.parametrize("name", FORMATS)
def test_deep_nesting(name: str) -> None:
    depth = 1_000_000
    deep = {
        "json": b'{"x":' + b"[" * depth + b"]" * depth + b"}",
        "msgpack": b"\x81\xa1x" + b"\x91" * depth + b"\xc0",
        "avro": b"\xff" * depth,
        "protobuf": b"\x6a\x7f" * depth,
        "canal-json": b'{"type":"INSERT","data":' + b"[" * depth + b"]" * depth + b"}",
        "debezium-json": b'{"op":"c","after":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}",
    }[name]
    decoded = decoders()[name].decode(pa.array([deep, bodies(3)[name]], pa.binary()))
    assert [bad.row for bad in decoded.bad] == [0]
    assert decoded.values[1].as_py() is not None


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=40), cut=st.integers(0, 60))
@example(body=b"", cut=0)
@example(body=b"\0" * 9, cut=0)
@example(body=b"null", cut=0)
@example(body=b'{"schema":1,"payload":2}', cut=0)
def test_random_bytes_are_a_row_or_a_bad_row(name: str, body: bytes, cut: int) -> None:
    good = bodies(3)[name]
    changed = [body, good[:cut] + body, good[:cut] + body + good[cut + len(body) :], good]
    decoded = decoders()[name].decode(pa.array(changed, pa.binary()))
    values = decoded.values.to_pylist()
    assert [bad.row for bad in decoded.bad] == [n for n, one in enumerate(values) if one is None]
    assert values[-1] is not None, "a bad body does not harm the next one"
