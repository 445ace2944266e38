"""Stores that Apache RocketMQ's own store classes wrote, opened by us.

Every message must come back by queue, key and time, and the queue and index files that we build
from the Java log must be the bytes that Java wrote. What we add, Java must read again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.interop.exchanged_store import (
    assert_all_reached,
    derived_bytes,
    forget_derived,
    our_config,
    our_listing,
    ours,
    ranges,
    theirs,
)
from tests.interop.java_store import JavaStore, Row, StoreSession

pytestmark = pytest.mark.interop

LONG_TOPIC = "%RETRY%" + "group" * 40
PREPARED, COMMITTED, ROLLED_BACK = 0x4, 0x8, 0xC
KEYS = [
    ("Orders", "k7"), ("Orders", "U24"), ("Payments", "k31"), ("Orders", "big"), ("Batch", "b17"),
    ("Batch", "UB3"), ("Orders", "half"), ("Orders", "undone"), ("SCHEDULE_TOPIC_XXXX", "later"),
    ("Orders", "no such key"), ("Orders", "spaced"),
]  # fmt: skip


def java_script(version: str) -> Iterator[dict[str, Any]]:
    """Every kind of message that a Java broker stores, with rolls of all kinds of files."""
    for number in range(800):
        topic, queue_id = ("Orders", "Payments")[number % 2], number % 3
        yield {
            "op": "put", "topic": topic, "queue_id": queue_id, "body": b"number %d" % number,
            "tags": f"Tag{number % 5}" if number % 5 else None,
            "keys": f"k{number % 40} every{number % 20}" if number % 3 else None,
            "unique_key": f"U{number}" if number % 4 == 0 else None,
            "properties": {"text": 'é中\U0001f600"\\', "n": str(number)}, "flag": number - 5,
            "sys_flag": COMMITTED if number % 7 == 0 else 0,
            "born_timestamp_ms": 1_600_000_000_000 + number,
            "born_host": f"[fe80::7:{number:x}]:80" if number % 2 else f"10.1.2.3:{number}",
            "store_host": "[fe80::1]:10911" if number % 11 == 0 else "127.0.0.1:10911",
            "reconsume_times": number % 4, "prepared_transaction_position": number,
        }  # fmt: skip
    for body in (b"x" * 60 * 1024, bytes(60 * 1024), b""):
        yield {"op": "put", "topic": "Orders", "queue_id": 1, "body": body, "keys": "big"}
    for level in range(1, 19):
        yield {"op": "put", "topic": "Orders", "body": b"later", "tags": "Tag", "keys": "later",
               "delay_level": level}  # fmt: skip
    for keys, sys_flag in (("half", PREPARED), ("undone", ROLLED_BACK)):
        yield {"op": "put", "topic": "Orders", "body": b"tx", "keys": keys, "sys_flag": sys_flag}
    for raw in ("KEYS\x01 spaced  spaced \x02", "TAGS\x01no end", "\x01\x02KEYS\x01a\x02KEYS\x01b"):
        yield {"op": "put", "topic": "Orders", "body": b"raw", "properties_string": raw}
    for number in range(40):
        yield {"op": "put", "topic": "Timed", "queue_id": 5, "body": b"%d" % number}
        yield {"op": "sleep", "ms": 2}
    for batch in range(6):
        messages = [
            {"body": b"%d-%d" % (batch, number), "keys": f"b{number}", "tags": "TagB", "flag": 3,
             "unique_key": f"UB{number}"}
            for number in range(30)
        ]  # fmt: skip
        yield {"op": "batch", "topic": "Batch", "queue_id": batch % 2, "messages": messages}
    if version != "4.9.8":
        for number in range(120):
            yield {"op": "put", "topic": LONG_TOPIC, "body": b"%d" % number, "keys": "retry"}


def perform(session: StoreSession, script: Iterator[dict[str, Any]]) -> None:
    for line in script:
        _, done = session.perform(**line)
        assert done.get("status", "PUT_OK") == "PUT_OK", line


def by_key(session: StoreSession) -> dict[tuple[str, str], list[Row]]:
    """What Java finds; it gives a message twice that has a key twice."""
    found = {}
    for key in KEYS:
        rows = theirs(session.query(*key), with_size=False)
        found[key] = [row for number, row in enumerate(rows) if row not in rows[:number]]
    return found


def times_of(rows: list[Row], version: str) -> list[tuple[str, int, int, int]]:
    """(topic, queue id, store time, offset) where a time names one message of its queue.

    4.9 picks the queue file by its modification time: only queues of one file are sure there.
    """
    offsets: dict[tuple[str, int, int], list[int]] = {}
    for row in rows:
        if row["topic"] == "Timed" or version != "4.9.8":
            time = (row["topic"], row["queue_id"], row["store_timestamp_ms"])
            offsets.setdefault(time, []).append(row["queue_offset"])
    return [(*time, found[0]) for time, found in offsets.items() if len(found) == 1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_closed_store_is_read_rebuilt_and_continued(
    java_store: JavaStore, root: Path, tmp_path: Path, summary_lines: list[str]
) -> None:
    config = our_config(java_store.version)
    with java_store.opened(root) as session:
        perform(session, java_script(java_store.version))
        listed = session.dump()
        found = by_key(session)
        by_time = times_of(listed.messages, java_store.version)
        for topic, queue_id, stored_ms, offset in by_time:
            assert session.offset_at(topic, queue_id, stored_ms) == offset
    assert_all_reached(listed)
    rebuilt = shutil.copytree(root, tmp_path / "rebuilt")
    original = derived_bytes(root)

    with MessageStore.open(root, config) as store:
        assert store.recovery.adopted
        mine = our_listing(store)
        assert mine.messages == theirs(listed.messages)
        assert ranges(mine) == ranges(listed)
        assert mine.max_position == listed.max_position
        assert {key: [ours(r) for r in store.query(*key, count_max=64)] for key in KEYS} == found
        assert len(by_time) >= 30
        for topic, queue_id, stored_ms, offset in by_time:
            assert store.offset_by_time(topic, queue_id, stored_ms) == offset
    assert derived_bytes(root) == original

    forget_derived(rebuilt)
    MessageStore.open(rebuilt, config).close()
    queues, index = derived_bytes(rebuilt)
    assert queues == original[0]
    assert index == original[1]
    assert min(len(queues), len(index)) > 3
    summary_lines.append(
        f"We from the log of RocketMQ {java_store.version} with {len(listed.messages)} messages: "
        f"the same {len(queues)} queue files and {len(index)} index files"
    )

    with MessageStore.open(root, config) as store:
        assert store.recovery.clean
        for number in range(300):
            topic, queue_id = ("Orders", "Ours")[number % 2], number % 3
            assert store.append(Message(topic, b"ours %d" % number, queue_id, keys="ours")).ok
        store.flush()
        mine = our_listing(store)
        added = [ours(record) for record in store.query("Ours", "ours", count_max=64)]
    with java_store.opened(root) as session:
        again = session.dump()
        assert theirs(session.query("Ours", "ours"), with_size=False) == added
        session.kill()
    assert_all_reached(again)
    assert theirs(again.messages) == mine.messages
    assert ranges(again) == ranges(mine)


def test_a_killed_store_is_read_and_rebuilt(java_store: JavaStore, root: Path) -> None:
    """Also with the record checksums of 5.x, which 4.9 does not know."""
    with java_store.opened(root, config={"enabledAppendPropCRC": True}) as session:
        perform(session, java_script(java_store.version))
        listed = session.dump()
        found = by_key(session)
        session.kill()
    assert (root / "abort").exists()
    original = derived_bytes(root)
    with MessageStore.open(root, our_config(java_store.version)) as store:
        mine = our_listing(store)
        assert mine.messages == theirs(listed.messages)
        assert ranges(mine) == ranges(listed)
        assert mine.max_position == listed.max_position
        assert {key: [ours(r) for r in store.query(*key, count_max=64)] for key in KEYS} == found
    assert not (root / "abort").exists()
    assert derived_bytes(root) == original


@pytest.mark.parametrize("who", ["java deletes", "we delete"])
def test_a_topic_that_is_deleted_and_used_again_in_java(
    java_store: JavaStore, root: Path, who: str
) -> None:
    """Java counts from 0 again then; only the new messages are in the topic, for both."""
    config = our_config(java_store.version)
    with MessageStore.open(root, config) as store:
        for topic in ["T"] * 5 + ["Other"] * 3:
            store.append(Message(topic, b"old"))
        if who == "we delete":
            assert store.delete_topic("T") == 1
    shutil.rmtree(root / "consumequeue/T", ignore_errors=True)
    with java_store.opened(root) as session:
        for number in range(7):
            session.perform("put", topic="T", body=b"new %d" % number)
        listed = session.dump()
        session.kill()
    assert ranges(listed) == [("Other", 0, 0, 3), ("T", 0, 0, 7)]
    with MessageStore.open(root, config) as store:
        assert our_listing(store).messages == theirs(listed.messages)
        assert store.append(Message("T", b"ours")).queue_offset == 7
    with MessageStore.open(root, config) as store:
        assert store.offsets("T", 0) == (0, 8)
