"""Avro's Java library and ours on the same bodies: its random values, chosen ones, damaged ones."""

from __future__ import annotations

import decimal
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.nested_arrays import with_numbers
from pyspark_rmq.payloads.schema_options import NONE
from tests.pyspark_rmq.payloads.avro.typed_schemas import given
from tests.pyspark_rmq.payloads.native import compared_decoders

pytestmark = pytest.mark.interop
pyspark = pytest.importorskip("pyspark")

TIMEOUT_S = 300
SOURCE = Path(__file__).parent / "java_avro" / "AvroBodies.java"
JARS = Path(pyspark.__file__).parent / "jars"
US, NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def logical(kind: str, meaning: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


class Case(NamedTuple):
    schema: Any
    kind: Any


_LINE = record("Line", f="float", yes="boolean", none="null", raw="bytes")
_INTS = {"type": "array", "items": "int"}
_LINE_KIND = pa.struct({"f": pa.float32(), "yes": pa.bool_(), "raw": pa.binary()})
_CASES = {
    "primitives": Case(
        record("P", i="int", l="long", f="float", d="double", s="string", b="bytes", y="boolean"),
        pa.struct(
            {"i": pa.int32(), "l": pa.int64(), "f": pa.float32(), "d": pa.float64(),
             "s": pa.string(), "b": pa.binary(), "y": pa.bool_()}
        ),
    ),
    "wider": Case(record("W", i="int", f="float"), pa.struct({"i": pa.int64(), "f": pa.float64()})),
    "narrower": Case(
        record("N", i="int", l="long", m="long"),
        pa.struct({"i": pa.int8(), "l": pa.int32(), "m": pa.int16()}),
    ),
    "unions": Case(
        record(
            "U", a=["null", "string"], b=["long", "null"], c=["null", "int", "long"],
            d=["float", "null", "double"], e=["null", _LINE], f=[{"type": "map", "values": "int"}],
        ),
        pa.struct(
            {"a": pa.string(), "b": pa.int64(), "c": pa.int64(), "d": pa.float64(),
             "e": _LINE_KIND, "f": pa.map_(pa.string(), pa.int32())}
        ),
    ),
    "names": Case(
        record(
            "N", e={"type": "enum", "name": "E", "namespace": "x.y", "symbols": ["A", "B", "Ü"]},
            again="x.y.E", fixed={"type": "fixed", "name": "F", "size": 5}, other="F",
        ),
        pa.struct(
            {"e": pa.string(), "again": pa.string(), "fixed": pa.binary(), "other": pa.binary()}
        ),
    ),
    "nested": Case(
        record(
            "D",
            a={"type": "array", "items": {"type": "map", "values": ["null", _LINE]}},
            b={"type": "map", "values": {"type": "array", "items": _INTS}},
            c=record("Inner", c=["null", record("Innermost", c=_INTS)]),
        ),
        pa.struct(
            {"a": pa.list_(pa.map_(pa.string(), _LINE_KIND)),
             "b": pa.map_(pa.string(), pa.list_(pa.list_(pa.int32()))),
             "c": pa.struct({"c": pa.struct({"c": pa.list_(pa.int32())})})}
        ),
    ),
    "skipped": Case(
        record(
            "S", a={"type": "array", "items": ["null", _LINE]}, x="int", b={"type": "map",
            "values": {"type": "array", "items": "bytes"}}, c=["string", "Line", "null"],
            d={"type": "fixed", "name": "F9", "size": 9}, y="string", e="Line",
        ),
        pa.struct({"y": pa.string(), "x": pa.int32()}),
    ),
    "times": Case(
        record(
            "T", d=logical("int", "date"), ms=logical("long", "timestamp-millis"),
            us=["null", logical("long", "timestamp-micros")],
            lms=logical("long", "local-timestamp-millis"),
            lus=logical("long", "local-timestamp-micros"),
        ),
        pa.struct({"d": pa.date32(), "ms": US, "us": US, "lms": NTZ, "lus": NTZ}),
    ),
    "decimals": Case(
        record(
            "M", a=logical("bytes", "decimal", precision=10, scale=2),
            b=logical("bytes", "decimal", precision=38, scale=38),
            c=logical("fixed", "decimal", name="F16", size=16, precision=38, scale=0),
            e=["null", logical("fixed", "decimal", name="F3", size=3, precision=6, scale=1)],
        ),
        pa.struct(
            {"a": pa.decimal128(10, 2), "b": pa.decimal128(38, 38), "c": pa.decimal128(38, 0),
             "e": pa.decimal128(10, 3)}
        ),
    ),
    "logical types without a column": Case(
        record(
            "L", t=logical("int", "time-millis"), u=logical("string", "uuid"),
            n=logical("long", "timestamp-nanos"), m=logical("long", "time-micros"),
            w=logical("fixed", "duration", name="Du", size=12), x=logical("int", "unheard-of"),
        ),
        pa.struct(
            {"t": pa.int32(), "u": pa.string(), "n": pa.int64(), "m": pa.int64(),
             "w": pa.binary(), "x": pa.int32()}
        ),
    ),
}  # fmt: skip


class Bad(Exception):
    """The column cannot hold a value that the schema permits."""


def expected(schema: Any, kind: Any, value: Any, named: dict[str, Any]) -> Any:
    """A value in Avro's JSON form as Arrow has it, with times as numbers."""
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if isinstance(schema, list):
        if value is None:
            return None
        [(name, inside)] = value.items()
        [branch] = [one for one in schema if name in (_name(one), _name(one).rpartition(".")[2])]
        return expected(branch, kind, inside, named)
    is_logical = "logicalType" in schema
    match schema["type"]:
        case "null":
            return None
        case "record":
            of = {field["name"]: field["type"] for field in schema["fields"]}
            return {
                field.name: expected(of[field.name], field.type, value[field.name], named)
                for field in kind
            }
        case "array":
            return [expected(schema["items"], kind.value_type, one, named) for one in value]
        case "map":
            return sorted(
                (key, expected(schema["values"], kind.item_type, one, named))
                for key, one in value.items()
            )
        case "bytes" | "fixed":
            raw = value.encode("latin-1")
            return _decimal(schema, kind, raw) if pa.types.is_decimal(kind) else raw
        case "int" | "long" if is_logical or pa.types.is_integer(kind):
            return _number(schema.get("logicalType", ""), kind, value)
        case "float" | "double":
            return float(value)
        case _:
            return value


def _number(name: str, kind: Any, value: int) -> int:
    if name.endswith("millis") and not pa.types.is_integer(kind):
        value *= 1_000
    limit = 1 << kind.bit_width - 1
    if not -limit <= value < limit:
        raise Bad
    return value


def _decimal(schema: Any, kind: Any, raw: bytes) -> decimal.Decimal:
    unscaled = int.from_bytes(raw, "big", signed=True) * 10 ** (kind.scale - schema["scale"])
    # Java's BigInteger takes no empty array.
    if not raw or abs(unscaled) >= 10**kind.precision:
        raise Bad
    return decimal.Decimal(unscaled).scaleb(-kind.scale, decimal.Context(prec=80))


def _name(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    kind = branch["type"]
    return branch["name"] if kind in ("record", "enum", "fixed") else kind


def named_in(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The types with names, so that a later mention finds them."""
    if isinstance(schema, list):
        for one in schema:
            named_in(one, found)
    elif isinstance(schema, dict):
        if "name" in schema:
            space = f"{schema['namespace']}." if "namespace" in schema else ""
            found[space + schema["name"]] = schema
        for field in schema.get("fields", ()):
            named_in(field["type"], found)
        for inside in ("items", "values"):
            named_in(schema.get(inside), found)
    return found


def in_order(value: Any) -> Any:
    """Entries of maps in the order of their keys."""
    if isinstance(value, dict):
        return {name: in_order(one) for name, one in value.items()}
    if isinstance(value, list):
        pairs = value and all(isinstance(one, tuple) for one in value)
        found = [(one[0], in_order(one[1])) if pairs else in_order(one) for one in value]
        return sorted(found, key=lambda pair: pair[0]) if pairs else found
    return value


def java(lines: Sequence[str]) -> list[str]:
    """The answers of the Java program."""
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", str(SOURCE)],
        input="\n".join(lines), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n").split("\n")


# Why ours refuses what Java takes: Java cuts numbers off, and replaces what is not UTF-8.
_STRICTER = r"is no (int|long)|UTF-8|boolean|number of more|branch|symbol"
_COUNT = 200


def compare(case: Case, bodies: Sequence[bytes], texts: Sequence[str], *, damaged: bool) -> int:
    """Our rows beside Java's values; a text `bad` is a body that Java refuses. How many are equal.

    With `damaged`, Java may take what is not Avro (`_STRICTER`).
    """
    decoded = AvroDecoder(case.kind, given(case.schema, NONE)).decode(pa.array(bodies, pa.binary()))
    reasons = dict(decoded.bad)
    rows = with_numbers(decoded.values).to_pylist()
    named = named_in(case.schema, {})
    equal = 0
    for number, (body, text) in enumerate(zip(bodies, texts, strict=True)):
        where = (body.hex(), text, reasons.get(number))
        if text == "bad":
            assert number in reasons, where
            continue
        try:
            value = expected(case.schema, case.kind, json.loads(text), named)
        except Bad:
            assert number in reasons, where
            continue
        if number in reasons and damaged:
            assert re.search(_STRICTER, reasons[number]), where
            continue
        assert number not in reasons, where
        assert repr(in_order(rows[number])) == repr(in_order(value)), where
        equal += 1
    return equal


def chosen(name: str, chance: Random) -> dict[str, Any]:
    """A value that its columns can hold, as JSON; Avro's own generator makes few of them."""

    def number(bits: int) -> int:
        return chance.randrange(-(1 << bits - 1), 1 << bits - 1)

    def raw(digits: int, size: int | None = None) -> str:
        limit = 10 ** chance.randint(1, digits) - 1
        unscaled = chance.randint(-limit, limit)
        length = size or unscaled.bit_length() // 8 + 1 + chance.randint(0, 2)
        return unscaled.to_bytes(length, "big", signed=True).decode("latin-1")

    if name == "narrower":
        return {"i": number(8), "l": number(32), "m": number(16)}
    if name == "times":
        us = None if chance.random() < 0.2 else {"long": number(64)}
        return {"d": number(32), "ms": number(50), "us": us, "lms": number(50), "lus": number(58)}
    small = None if chance.random() < 0.2 else {"F3": raw(6, 3)}
    return {"a": raw(10), "b": raw(38), "c": raw(38, 16), "e": small}


@pytest.mark.timeout(600)
def test_bodies_of_the_java_library() -> None:
    """Its values are ours, with blocks of every size. What it refuses is a bad record here."""
    chance, lines = Random(20), []
    for name, case in _CASES.items():
        lines += [f"schema {json.dumps(case.schema)}", f"random {_COUNT} {chance.randrange(99)}"]
        if name in ("narrower", "times", "decimals"):
            values = (chosen(name, chance) for _ in range(_COUNT))
        else:
            values = ()
        lines += [f"encode {json.dumps(value)}" for value in values]
    answers = iter(java(lines))
    broken: list[list[bytes]] = []
    lines = []
    for name, case in _CASES.items():
        count = 2 * _COUNT if name in ("narrower", "times", "decimals") else _COUNT
        pairs = [next(answers).split(" ", 1) for _ in range(count)]
        bodies = [bytes.fromhex(body) for body, _ in pairs]
        equal = compare(case, bodies, [text for _, text in pairs], damaged=False)
        assert equal >= _COUNT, name
        broken.append([compared_decoders.damaged(chance.choice(bodies), chance) for _ in bodies])
        lines.append(f"schema {json.dumps(case.schema)}")
        lines += [f"decode {body.hex()}" for body in broken[-1]]
    answers = iter(java(lines))
    for bodies, case in zip(broken, _CASES.values(), strict=True):
        texts = [next(answers) for _ in bodies]
        assert "bad" in texts
        compare(case, bodies, texts, damaged=True)
