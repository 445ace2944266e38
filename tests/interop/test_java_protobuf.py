"""Protobuf's Java library and ours on the same bodies, in both directions."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.encoding import ProtobufEncoder
from tests.interop.maven_artifacts import PeerUnavailable, resolved_jars
from tests.interop.peer_releases import PROTOBUF_VERSION
from tests.pyspark_rmq.payloads.native.compared_decoders import damaged, shown
from tests.pyspark_rmq.payloads.protobuf.shop_messages import KIND, descriptor_set, given

pytestmark = pytest.mark.interop

TIMEOUT_S = 300
SOURCE = Path(__file__).parent / "java_protobuf" / "ProtobufBodies.java"
# In Protobuf's JSON form, where 64-bit integers are texts and bytes Base64.
ORDERS: list[dict[str, Any]] = [
    {
        "id": "é1", "n": -(1 << 31), "big": str((1 << 64) - 1), "small": (1 << 32) - 1,
        "zig": str(-(1 << 63)), "f": 0.5, "d": -1.25e300, "yes": True, "raw": "/wA=", "size": "L",
        "maybe": 0, "at": "2024-05-31T12:00:00.123456Z", "line": {"a": 1},
        "lines": [{"a": 2}, {}], "numbers": ["1", "-1", str((1 << 63) - 1)],
        "counts": {"k": 1, "": -5}, "byName": {"x": {"a": 9}}, "card": "c",
        "next": {"id": "inner", "next": {"id": "innermost"}},
    },
    {"maybe": 5, "cash": 0, "at": "0001-01-01T00:00:00Z", "line": {}},
    {"at": "9999-12-31T23:59:59.999999Z", "d": "NaN", "f": "-Infinity"},
    {},
]  # fmt: skip


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`java(lines)`: the answers of the Java program."""
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    coordinates = [f"com.google.protobuf:protobuf-java-util:{PROTOBUF_VERSION}"]
    try:
        jars = resolved_jars(f"protobuf-java-util-{PROTOBUF_VERSION}", coordinates)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    descriptors = tmp_path_factory.mktemp("protobuf") / "shop.desc"
    descriptors.write_bytes(descriptor_set())

    def answers(lines: list[str]) -> list[str]:
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(SOURCE)]
        done = subprocess.run(
            [*command, str(descriptors), "shop.Order"],
            input="\n".join(lines), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            encoding="utf-8",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.removesuffix("\n").split("\n")

    return answers


def test_both_libraries_agree(java: Any) -> None:
    """Java writes, we read; we write the same again, and Java reads it as what it wrote."""
    bodies = [bytes.fromhex(line) for line in java([f"encode {json.dumps(o)}" for o in ORDERS])]
    decoded = ProtobufDecoder(KIND, given()).decode(pa.array(bodies, pa.binary()))
    assert not decoded.bad
    first, second, third, last = decoded.values.to_pylist(maps_as_pydicts="strict")
    assert (first["id"], int(first["big"]), first["zig"]) == ("é1", (1 << 64) - 1, -(1 << 63))
    assert (first["raw"], first["size"], first["maybe"]) == (b"\xff\0", "L", 0)
    assert first["at"].isoformat() == "2024-05-31T12:00:00.123456+00:00"
    assert (first["lines"], first["counts"]) == ([{"a": 2}, {"a": 0}], {"k": 1, "": -5})
    assert first["next"] == {"id": "inner", "next": {"id": "innermost"}}
    assert (first["card"], first["cash"], second["card"], second["cash"]) == ("c", None, None, 0)
    assert (second["line"], last["line"], last["n"], last["maybe"]) == ({"a": 0}, None, 0, None)
    assert str(third["d"]) == "nan" and third["at"].year == 9999
    written = ProtobufEncoder(KIND, given()).encode(decoded.values).to_pylist()
    lines = [f"decode {body.hex()}" for body in (*bodies, *written)]
    shown = [json.loads(line) for line in java(lines)]
    assert shown[len(ORDERS) :] == shown[: len(ORDERS)]


def order(chance: Random, depth: int = 3) -> dict[str, Any]:
    """Some of the fields, with any value of their type."""

    def number(bits: int, signed: bool = True) -> int:
        size = chance.choice([1, 7, 8, 14, bits - 1])
        found = chance.getrandbits(size)
        return -found - 1 if signed and chance.random() < 0.5 else found

    def text() -> str:
        return "".join(
            chance.choice("aé\u20ac\U0001f600\x00\n\x85") for _ in range(chance.randrange(9))
        )

    def line() -> dict[str, Any]:
        return {"a": number(32)} if chance.random() < 0.8 else {}

    def several(one: Any) -> list[Any]:
        return [one() for _ in range(chance.choice([0, 1, 2, 40]))]

    values: dict[str, Any] = {
        "id": text, "n": lambda: number(32), "big": lambda: str(number(64, False)),
        "small": lambda: number(32, False), "zig": lambda: str(number(64)),
        "f": lambda: chance.choice([0.5, -0.0, "NaN", "-Infinity", 1e-45, 3.4028234663852886e38]),
        "d": lambda: chance.choice([chance.uniform(-1, 1), 5e-324, "Infinity", -0.0]),
        "yes": lambda: chance.random() < 0.5,
        "raw": lambda: base64.b64encode(chance.randbytes(chance.choice([0, 1, 200]))).decode(),
        "size": lambda: chance.choice("SL"), "maybe": lambda: number(32), "line": line,
        "at": lambda: f"{chance.randint(1, 9999):04}-02-03T04:05:06.{chance.randrange(10**6):06}Z",
        "lines": lambda: several(line), "numbers": lambda: several(lambda: str(number(64))),
        "counts": lambda: {text(): number(32) for _ in range(3)},
        "byName": lambda: {text(): line() for _ in range(3)},
        chance.choice(["card", "cash"]): lambda: number(32),
    }  # fmt: skip
    if depth:
        values["next"] = lambda: order(chance, depth - 1)
    chosen = {name: make() for name, make in values.items() if chance.random() < 0.6}
    return {**chosen, "card": f"{chosen['card']}"} if "card" in chosen else chosen


def test_random_and_damaged_bodies(java: Any) -> None:
    """What Java reads we read, and what it refuses is a bad record; both decoders of ours agree."""
    chance = Random(20)
    bodies = [
        bytes.fromhex(line)
        for line in java([f"encode {json.dumps(order(chance))}" for _ in range(300)])
    ]
    given_bodies = bodies + [damaged(chance.choice(bodies), chance) for _ in range(900)]
    theirs = java([f"decode {body.hex()}" for body in given_bodies])
    decoder = ProtobufDecoder(KIND, given())
    decoded = decoder.decode(pa.array(given_bodies, pa.binary()))
    by_row = decoder.by_row(pa.array(given_bodies, pa.binary()))
    assert shown(decoded.values) == shown(by_row.values)
    reasons = dict(decoded.bad)
    assert not any(number < len(bodies) for number in reasons)
    written = ProtobufEncoder(KIND, given()).encode(decoded.values.drop_null()).to_pylist()
    again = iter(java([f"decode {body.hex()}" for body in written]))
    for number, text in enumerate(theirs):
        where = (given_bodies[number].hex(), text, reasons.get(number))
        if text == "bad":
            assert number in reasons, where
        elif number in reasons:
            # Values that a column cannot hold: names of enums, times.
            assert "not Protobuf" not in reasons[number], where
        elif number < len(bodies):
            # Ours has no levels below the columns.
            assert _cut(json.loads(next(again))) == _cut(json.loads(text)), where


def _cut(found: dict[str, Any]) -> dict[str, Any]:
    inner = found.get("next", {})
    below = {"id": inner.get("next", {}).get("id")}
    return {**found, "next": {"id": inner.get("id"), "next": below}}
