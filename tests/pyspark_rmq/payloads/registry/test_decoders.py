"""Bodies with schema ids: Avro by a registry, and Protobuf with frames taken off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from broker_core import errors
from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.messages import message_class, message_path
from pyspark_rmq.payloads.registry.client import RegistryAddress, RegistryError
from pyspark_rmq.payloads.registry.decoders import FramedProtobufDecoder, RegistryDecoder
from pyspark_rmq.payloads.schema_options import SchemaOptions
from tests.pyspark_rmq.payloads.protobuf import shop_messages
from tests.pyspark_rmq.payloads.registry.http_registry import HttpRegistry, http_registry

KIND = pa.struct([("a", pa.int32()), ("b", pa.string())])


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    with http_registry() as running:
        running.add(1, record(a="int"))
        running.add(2, record(b="string", a="int"))
        running.add(3, record(a="string"))
        running.add(4, {"type": "nothing"})
        yield running


def record(**fields: Any) -> Any:
    found = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": found}


def decoder(registry: HttpRegistry, schema_id: int | None = None) -> RegistryDecoder:
    address = RegistryAddress(registry.url, schema_id=schema_id)
    return RegistryDecoder(KIND, SchemaOptions("value.schema.registry.url", registry=address))


def frame(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def test_schemas_of_several_ids(registry: HttpRegistry) -> None:
    bodies = [
        frame(2) + b"\2x\4", frame(1) + b"\2", b"\2", frame(9) + b"\2", frame(3) + b"\2x",
        frame(2) + b"\2y\6", frame(1) + b"\2\2", frame(4), frame(1) + b"\4",
    ]  # fmt: skip
    reading = decoder(registry)
    decoded = reading.decode(pa.array(bodies, pa.binary()))
    assert decoded.values.to_pylist() == [
        {"a": 2, "b": "x"}, {"a": 1, "b": None}, None, None, None, {"a": 3, "b": "y"}, None, None,
        {"a": 2, "b": None},
    ]  # fmt: skip
    reasons = dict(decoded.bad)
    assert list(reasons) == [2, 3, 4, 6, 7]
    assert reasons[2].startswith("not Avro: it does not begin with a zero byte")
    assert reasons[3].endswith("has no schema 9")
    assert "value.a is INT, and Avro's string is not read as it" in reasons[4]
    assert "1 bytes are left over" in reasons[6]
    assert "is no Avro schema" in reasons[7]
    asked = len(registry.asked)
    reading.decode(pa.array(bodies, pa.binary()))
    assert len(registry.asked) == asked == 5, "also those that are not there"
    assert len(reading.decode(pa.array([], pa.binary())).values) == 0


def test_the_schema_of_the_option_must_fit(registry: HttpRegistry) -> None:
    decoder(registry, 2)
    for number, text in ((3, "is not read as it"), (9, "has no schema 9")):
        with pytest.raises(errors.InvalidArgument, match=rf"registry\.id={number}: .*{text}"):
            decoder(registry, number)


def test_a_registry_that_fails_is_no_bad_record(registry: HttpRegistry) -> None:
    registry.answers["/schemas/ids/5"] = (503, b"")
    with pytest.raises(RegistryError, match="it answers 503"):
        decoder(registry).decode(pa.array([frame(5)], pa.binary()))


def test_protobuf() -> None:
    given = shop_messages.given("shop.Line")
    body = message_class(given)(a=5).SerializeToString()
    kind = pa.struct([("a", pa.int32())])
    assert message_path(given) == [1]
    assert message_path(shop_messages.given("shop.Order")) == [0]
    assert message_path(shop_messages.given("shop.Flat.CountsEntry")) == [0, 0]
    bodies = pa.array(
        [body, frame(7) + b"\2\2" + body, frame(7) + b"\0" + body, frame(7), b"\0", b"\xff"],
        pa.binary(),
    )

    def decoded(framing: str) -> list[Any]:
        found = FramedProtobufDecoder(ProtobufDecoder(kind, given), framing).decode(bodies)
        assert [bad.row for bad in found.bad] == [
            row for row, value in enumerate(found.values.to_pylist()) if value is None
        ]
        return [value and value["a"] for value in found.values.to_pylist()]

    assert decoded("auto") == [5, 5, 5, None, None, None]
    assert decoded("always") == [None, 5, 5, None, None, None]
    assert decoded("none") == [5, None, None, None, None, None]
