"""Types of samples; tests/spark/test_payload_schemas.py compares them with `spark.read.json`."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from broker_core import errors
from pyspark_rmq.payloads.inference.described import ddl_of
from pyspark_rmq.payloads.inference.sampled_types import sampled_type


def of_json(*bodies: str) -> str:
    return ddl_of(sampled_type([body.encode() for body in bodies], "json"))


def of_msgpack(*values: Any) -> str:
    return ddl_of(sampled_type([msgpack.packb(value) for value in values], "msgpack"))


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        (['{"b":1,"a":"x"}'], "`a`: string, `b`: long"),
        (['{"a":1}', '{"a":1.5}'], "`a`: double"),
        (['{"a":1}', '{"a":true}'], "`a`: string"),
        (['{"a":1}', '{"a":null}', "{}"], "`a`: long"),
        (['{"a":null}'], "`a`: string"),
        (['{"a":12345678901234567890}', '{"a":1}'], "`a`: decimal(20,0)"),
        (['{"a":[]}'], "`a`: array<string>"),
        (['{"a":[{"x":1},{"y":"t"}]}'], "`a`: array<struct<`x`: long, `y`: string>>"),
        (['{"a":{},"b":1}'], "`b`: long"),
        (['{"a":{"b":1}}', '{"a":[1]}'], "`a`: string"),
        (['{"a`b":1}'], "`a``b`: long"),
        (["{", '{"a":1}', "\x00"], "`a`: long"),
    ],
)
def test_json(bodies: list[str], expected: str) -> None:
    assert of_json(*bodies) == f"struct<{expected}>"


def test_arrays_are_payloads() -> None:
    assert of_json("[1, 2]", "[3.5]") == "array<double>"


@pytest.mark.parametrize(
    ("bodies", "text"),
    [
        ([], "there are no messages"),
        (["{", "["], "no body of the sample can be decoded"),
        (["1"], "neither objects nor arrays"),
        (["{}"], "have no fields"),
        (["{}", "[1]", '{"a":1}'], "are objects and others are arrays"),
    ],
)
def test_samples_without_a_type(bodies: list[str], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"inferSchema=true: .*{text}"):
        of_json(*bodies)


def test_msgpack() -> None:
    value = {"i": 1, "u": (1 << 64) - 1, "f": 0.5, "t": msgpack.Timestamp(1, 2), "b": b"x", "n": {
        "s": ["t"]}}  # fmt: skip
    assert of_msgpack(value, {"i": 2.5}) == (
        "struct<`b`: binary, `f`: double, `i`: double, `n`: struct<`s`: array<string>>,"
        " `t`: timestamp, `u`: decimal(20,0)>"
    )
    # Unlike JSON, a text is no form of a number.
    with pytest.raises(errors.InvalidArgument, match=r"value\.a has values of .* long and string"):
        of_msgpack({"a": 1}, {"a": "x"})
    with pytest.raises(errors.InvalidArgument, match=r"value\.a is a map whose keys are not texts"):
        of_msgpack({"a": {1: 2}})
    with pytest.raises(errors.InvalidArgument, match="extension of msgpack"):
        of_msgpack({"a": msgpack.ExtType(5, b"")})
