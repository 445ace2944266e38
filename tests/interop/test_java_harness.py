"""The harness proves itself first: what the real store wrote, the real store lists, unchanged."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.interop.java_store import JavaStore, JavaStoreError, StoreLayout

pytestmark = pytest.mark.interop

BORN_MS = 1_700_000_000_123


def put(topic: str, body: bytes, **fields: Any) -> dict[str, Any]:
    return {"op": "put", "topic": topic, "body": body, **fields}


def bodies(rows: list[dict[str, Any]], topic: str, queue_id: int) -> list[bytes]:
    return [r["body"] for r in rows if (r["topic"], r["queue_id"]) == (topic, queue_id)]


def test_every_field_of_a_put_comes_back(java_store: JavaStore, tmp_path: Path) -> None:
    [answer] = java_store.write(
        tmp_path,
        [
            put(
                "Orders", b"\x00\xffbody", queue_id=3, tags="TagA", keys="k1 k2", unique_key="U1",
                properties={"z": "1", "a": 'é中\U0001f600"\\'}, flag=-7, sys_flag=0,
                born_timestamp_ms=BORN_MS, born_host="10.1.2.3:4567", store_host="[fe80::1]:10911",
                reconsume_times=2,
            )
        ],
    )  # fmt: skip
    listing = java_store.dump(tmp_path)
    [message] = listing.messages
    host_id = "FE80000000000000000000000000000100002A9F"
    expected = {
        "topic": "Orders",
        "queue_id": 3,
        "queue_offset": 0,
        "position": 0,
        "record_size": answer["wrote_bytes"],
        "message_id": host_id + "0" * 16,
        "store_timestamp_ms": answer["store_timestamp_ms"],
        "born_timestamp_ms": BORN_MS,
        "born_host": "10.1.2.3:4567",
        "flag": -7,
        "sys_flag": 1 << 5,
        "body": b"\x00\xffbody",
        "body_crc": zlib.crc32(b"\x00\xffbody") & 0x7FFFFFFF,
        "reconsume_times": 2,
    }
    assert {name: message[name] for name in expected} == expected
    assert message["properties"] == {
        "z": "1", "a": 'é中\U0001f600"\\', "TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "U1",
    }  # fmt: skip
    assert (listing.min_position, listing.max_position) == (0, answer["wrote_bytes"])


def test_queues_keys_and_times_over_many_files(java_store: JavaStore, tmp_path: Path) -> None:
    layout = StoreLayout(4096, 10 * 20, 20, 50)
    script: list[dict[str, Any]] = [
        put("T", b"%d" % number, queue_id=number % 2, keys=f"k{number % 10}")
        for number in range(120)
    ]
    script.insert(60, {"op": "sleep", "ms": 20})
    script.append(
        {"op": "batch", "topic": "B", "messages": [{"body": b"x", "keys": "kb"}, {"body": b"yy"}]}
    )
    answers = java_store.write(tmp_path, script, layout)
    assert len(list((tmp_path / "commitlog").iterdir())) > 3
    assert len(list((tmp_path / "index").iterdir())) > 1
    with java_store.opened(tmp_path, layout, in_place=False) as session:
        listing = session.dump()
        second_half_ms = answers[61]["store_timestamp_ms"]
        found = session.query("T", "k7")
        recent = session.query("T", "k7", begin_ms=second_half_ms + 3_600_000)
        offset = session.offset_at("T", 0, second_half_ms)
    for queue_id in (0, 1):
        assert bodies(listing.messages, "T", queue_id) == [
            b"%d" % number for number in range(queue_id, 120, 2)
        ]
    assert bodies(listing.messages, "B", 0) == [b"x", b"yy"]
    columns = ("topic", "queue_id", "min_offset", "max_offset")
    assert [tuple(queue[column] for column in columns) for queue in listing.queues] == [
        ("B", 0, 0, 2),
        ("T", 0, 0, 60),
        ("T", 1, 0, 60),
    ]
    assert [row["body"] for row in found] == [b"%d" % number for number in range(7, 120, 10)]
    assert recent == []
    assert offset == 30


def test_killed_store_recovers_completely(java_store: JavaStore, tmp_path: Path) -> None:
    script = [put("T", b"%d" % number, keys="k") for number in range(50)]
    answers = java_store.write(tmp_path, [*script, {"op": "kill"}])
    assert len(answers) == 50
    assert (tmp_path / "abort").exists()
    listing = java_store.dump(tmp_path, in_place=True)
    assert bodies(listing.messages, "T", 0) == [b"%d" % number for number in range(50)]
    assert not (tmp_path / "abort").exists()


def test_delayed_message_waits_in_the_schedule_topic(java_store: JavaStore, tmp_path: Path) -> None:
    java_store.write(tmp_path, [put("T", b"later", queue_id=1, delay_level=3)])
    [message] = java_store.dump(tmp_path).messages
    assert (message["topic"], message["queue_id"]) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert message["properties"] == {"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "1"}
    unit = next((tmp_path / "consumequeue/SCHEDULE_TOPIC_XXXX/2").iterdir()).read_bytes()[:20]
    assert int.from_bytes(unit[12:20], "big") == message["store_timestamp_ms"] + 10_000


def test_listing_a_copy_leaves_the_store_alone(java_store: JavaStore, tmp_path: Path) -> None:
    java_store.write(tmp_path, [put("T", b"x"), {"op": "kill"}])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    java_store.dump(tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_wrong_file_size_is_reported(java_store: JavaStore, tmp_path: Path) -> None:
    java_store.write(tmp_path, [put("T", b"x")])
    with pytest.raises(JavaStoreError, match="refused"):
        java_store.dump(tmp_path, StoreLayout(log_file_size=8192))


def test_refused_put_is_an_error(java_store: JavaStore, tmp_path: Path) -> None:
    with pytest.raises(JavaStoreError, match="MESSAGE_ILLEGAL"):
        java_store.write(tmp_path, [put("T", b"x" * 2000)], config={"maxMessageSize": 1000})


def test_append_rounds_count_what_was_written(java_store: JavaStore, tmp_path: Path) -> None:
    [row] = java_store.append_rounds(
        tmp_path, body_size=100, message_count=2000, batch_count=100, rounds=1, warmup_count=1000
    )
    assert (row["message_count"], row["body_bytes"]) == (2000, 200_000)
    assert row["record_bytes"] > 2000 * (91 + 100)
    assert 0 < row["append_seconds"] <= row["dispatched_seconds"]
