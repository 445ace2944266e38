"""Protobuf's Java library and ours on the same bodies, in both directions."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rmq.payloads.protobuf.bodies import ProtobufDecoder
from pyspark_rmq.payloads.protobuf.encoding import ProtobufEncoder
from tests.interop.maven_artifacts import PeerUnavailable, resolved_jars
from tests.interop.peer_releases import PROTOBUF_VERSION
from tests.pyspark_rmq.payloads.protobuf.shop_messages import KIND, descriptor_set, given

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
        return done.stdout.splitlines()

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
