"""Stores that we wrote, opened by Apache RocketMQ's own store classes.

Whatever state we leave a directory in (closed, killed, cleaned by retention, without derived files)
the real store must list exactly what was sent, and what it adds must be ours afterwards.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.errors import StoreLocked
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.manual_clock import ManualClock
from tests.interop.exchanged_store import (
    Sender,
    as_sent,
    assert_all_reached,
    derived_bytes,
    forget_derived,
    our_config,
    our_listing,
    ours,
    ranges,
    theirs,
)
from tests.interop.java_store import (
    SMALL_LAYOUT,
    JavaStore,
    JavaStoreError,
    Listing,
    Row,
    StoreLayout,
    StoreSession,
)

pytestmark = pytest.mark.interop

GROUP_TOPIC = "rmq_sys_append_group"
# Longer than a topic may be in 4.9; its length field has two bytes.
LONG_TOPIC = "%RETRY%" + "group" * 40
# 5.5 looks at ten log files at most otherwise; 4.9 does not know the setting.
REBUILD_ALL = {"commitLogRecoverMaxNum": 1000}
# One index file for many log files, as with the default sizes.
WIDE_INDEX = StoreLayout(index_slot_count=1000, index_entry_count_max=20_000)
KEYS = [
    ("Orders", "k7"), ("Orders", "U24"), ("Payments", "k31"), ("Orders", "big"), ("Rows", "row17"),
    ("Rows", "columns-17"), ("Grouped", "every7"), ("Orders", "no such key"), ("Orders", "k"),
]  # fmt: skip


def send_singles(sender: Sender, count: int, first: int = 0) -> None:
    """Two topics of three queues, one of them with IPv6 born hosts."""
    for number in range(first, first + count):
        topic, queue_id = ("Orders", "Payments")[number % 2], number % 3
        born_host = ("10.1.2.3", number) if topic == "Orders" else (f"fe80::7:{number:x}", 80)
        sender.put(
            Message(
                topic,
                b"number %d" % number,
                queue_id,
                tags=f"Tag{number % 5}" if number % 5 else "",
                keys=f"k{number % 40} every{number % 20}" if number % 3 else f"k{number % 40}",
                properties={"UNIQ_KEY": f"U{number}", "text": 'é中\U0001f600"\\'},
                flag=number - 5,
                sys_flag=8 if number % 7 == 0 else 0,
                born_timestamp=1_600_000_000_000 + number,
                born_host=born_host,
                reconsume_times=number % 4,
                prepared_transaction_offset=number,
            )
        )


def send_everything(sender: Sender, version: str) -> None:
    """Every kind of message and append, with rolls of log, queue and index files."""
    send_singles(sender, 400)
    for body, keys in ((b"", ""), (b"x" * 60 * 1024, "big"), (bytes(60 * 1024), "big")):
        sender.put(Message("Orders", body, 1, keys=keys))
    for level in range(1, 20):
        origin = {"REAL_TOPIC": "Orders", "REAL_QID": "1", "DELAY": str(level)}
        sender.put(Message("SCHEDULE_TOPIC_XXXX", b"later", level - 1, "Tag", properties=origin))
    sender.batch([("Rows", 0), ("Rows", 1), ("Orders", 2)], 2000, mark="columns")
    sender.batch([("Rows", 1)], 100, mark="together", together=True)
    sender.group([("Rows", 0), ("Grouped", 3)], 1000, b"note")
    if version != "4.9.8":
        for number in range(120):
            sender.put(Message(LONG_TOPIC, b"again %d" % number, keys="retry"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def sender(java_store: JavaStore, root: Path) -> Iterator[Sender]:
    """A sender of an open store in `root`, closed in the end."""
    clock = ManualClock()
    with MessageStore.open(root, our_config(java_store.version), clock=clock) as store:
        yield Sender(store, clock)


def assert_same(found: Listing, sender: Sender, mine: Listing) -> None:
    """Java lists what was sent, and in every other field what our own reader says."""
    assert_all_reached(found)
    rows = theirs(found.messages)
    headers = [row for row in as_sent(rows) if row["topic"] == GROUP_TOPIC]
    assert as_sent(rows) == sender.by_queue(headers)
    assert rows == mine.messages
    assert ranges(found) == ranges(mine)
    assert (found.min_position, found.max_position) == (mine.min_position, mine.max_position)


def assert_same_by_key(session: StoreSession, sender: Sender) -> None:
    """By key and unique key, also within a time range."""
    for topic, key in KEYS:
        rows = theirs(session.query(topic, key))
        expected = sender.with_key(topic, key)
        assert sorted(as_sent(rows), key=row_order) == sorted(expected, key=row_order), key
    stored_ms = [row["store_timestamp_ms"] for row in theirs(session.query("Orders", "k8"))]
    # Java only knows whole seconds since the file began, and has the message begin too early.
    begin_ms, end_ms = stored_ms[2] - 1000, stored_ms[6]
    between = theirs(session.query("Orders", "k8", begin_ms=begin_ms, end_ms=end_ms))
    assert [row["store_timestamp_ms"] for row in between] == stored_ms[2:7]


def row_order(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def file_count(directory: Path) -> int:
    return len(list(directory.iterdir()))


def test_a_closed_store_is_listed_by_queue_key_and_time(
    java_store: JavaStore, sender: Sender, root: Path
) -> None:
    send_everything(sender, java_store.version)
    sender.store.flush()
    mine = our_listing(sender.store)
    found_by_us = {key: [ours(r) for r in sender.store.query(*key, count_max=64)] for key in KEYS}
    by_time = [
        (row["topic"], row["queue_id"], row["store_timestamp_ms"], row["queue_offset"])
        for row in mine.messages
        # 4.9 picks the queue file by its modification time: only the first one is sure.
        if row["topic"] in ("Orders", "Payments") and row["queue_offset"] in (0, 1, 33, 60)
    ]
    sender.store.close()
    assert file_count(root / "commitlog") > 10
    assert file_count(root / "consumequeue/Rows/0") > 10
    assert file_count(root / "index") > 10
    with java_store.opened(root, in_place=False) as session:
        assert_same(session.dump(), sender, mine)
        assert_same_by_key(session, sender)
        for key in KEYS:
            assert theirs(session.query(*key), with_size=False) == found_by_us[key]
        assert len(by_time) == 24
        for topic, queue_id, stored_ms, offset in by_time:
            assert session.offset_at(topic, queue_id, stored_ms) == offset


def test_java_builds_the_same_queues_and_index_from_our_log(
    java_store: JavaStore, sender: Sender, root: Path, summary_lines: list[str]
) -> None:
    send_everything(sender, java_store.version)
    sender.store.close()
    queues, index = derived_bytes(root)
    forget_derived(root)
    (root / "abort").touch()
    found = java_store.dump(root, config=REBUILD_ALL, in_place=True)
    assert_all_reached(found)
    their_queues, their_index = derived_bytes(root)
    if java_store.version == "4.9.8":
        # It loads the delay levels after recovery and puts the tag where the due time belongs.
        for units in (queues, their_queues):
            for path in [path for path in units if path.startswith("SCHEDULE_TOPIC_XXXX")]:
                del units[path]
    assert their_queues == queues
    assert their_index == index
    summary_lines.append(
        f"RocketMQ {java_store.version} from our log of {len(found.messages)} messages: the same "
        f"{len(queues)} queue files and {len(index)} index files"
    )


def test_a_killed_store_is_complete(
    java_store: JavaStore, sender: Sender, root: Path, tmp_path: Path
) -> None:
    send_everything(sender, java_store.version)
    sender.store.flush()
    killed = shutil.copytree(root, tmp_path / "killed")
    assert (killed / "abort").exists()
    with java_store.opened(killed, config=REBUILD_ALL) as session:
        assert_same(session.dump(), sender, our_listing(sender.store))
        assert_same_by_key(session, sender)
        session.kill()


def test_a_store_killed_in_its_second_run_keeps_its_keys(
    java_store: JavaStore, tmp_path: Path
) -> None:
    """Java drops the index file that was growing and must find all of its records again."""
    clock = ManualClock()
    config = our_config(java_store.version, WIDE_INDEX)
    with MessageStore.open(tmp_path / "store", config, clock=clock) as store:
        sender = Sender(store, clock)
        send_everything(sender, java_store.version)
    with MessageStore.open(tmp_path / "store", config, clock=clock) as store:
        assert store.recovery.clean
        sender.store = store
        send_singles(sender, 60, first=400)
        store.flush()
        killed = shutil.copytree(tmp_path / "store", tmp_path / "killed")
        with java_store.opened(killed, WIDE_INDEX, REBUILD_ALL) as session:
            assert_same(session.dump(), sender, our_listing(store))
            assert_same_by_key(session, sender)
            session.kill()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_java_adds_is_ours_afterwards(
    java_store: JavaStore, sender: Sender, root: Path, end: str
) -> None:
    send_everything(sender, java_store.version)
    sender.store.close()
    with java_store.opened(root) as session:
        for number in range(250):
            topic, queue_id = ("Orders", "Added")[number % 2], number % 3
            keys = f"k{number % 40} added"
            body = b"added %d" % number
            _, done = session.perform(
                "put", topic=topic, queue_id=queue_id, body=body, keys=keys, tags="TagJ"
            )
            assert done["status"] == "PUT_OK"
        added = session.dump()
        by_key = {key: session.query("Orders", key) for key in ("k7", "added")}
        if end == "kill":
            session.kill()
    with MessageStore.open(root, our_config(java_store.version), clock=sender.clock) as store:
        mine = our_listing(store)
        assert mine.messages == theirs(added.messages)
        assert ranges(mine) == ranges(added)
        for key, rows in by_key.items():
            found = [ours(record) for record in store.query("Orders", key, count_max=64)]
            assert found == theirs(rows, with_size=False)
        for topic, queue_id, _, max_offset in ranges(mine):
            if topic != GROUP_TOPIC:
                assert store.append(Message(topic, b"next", queue_id)).queue_offset == max_offset
    queues, index = derived_bytes(root)
    forget_derived(root)
    MessageStore.open(root, our_config(java_store.version), clock=sender.clock).close()
    assert derived_bytes(root) == (queues, index)


def test_java_verifies_our_record_checksums(
    java_store: JavaStore, sender: Sender, root: Path
) -> None:
    if java_store.version == "4.9.8":
        pytest.skip("RocketMQ 4.9.8 has no record checksum")
    send_everything(sender, java_store.version)
    sender.store.flush()
    mine = our_listing(sender.store)
    sender.store.close()
    config = {**REBUILD_ALL, "forceVerifyPropCRC": True, "enabledAppendPropCRC": True}
    forget_derived(root)
    (root / "abort").touch()
    with java_store.opened(root, config=config, in_place=False) as session:
        assert_same(session.dump(), sender, mine)
    # The counter-check: one bit of a property, which only this checksum covers.
    last = mine.max_position % SMALL_LAYOUT.log_file_size
    log = sorted((root / "commitlog").iterdir())[mine.max_position // SMALL_LAYOUT.log_file_size]
    data = bytearray(log.read_bytes())
    data[last - 24] ^= 1
    log.write_bytes(data)
    with java_store.opened(root, config=config, in_place=False) as session:
        assert session.dump().max_position == max(row["position"] for row in mine.messages)


def test_one_directory_has_one_broker(java_store: JavaStore, sender: Sender, root: Path) -> None:
    """Java asks for the lock after its recovery, which has removed files by then."""
    send_singles(sender, 50)
    sender.store.flush()
    with pytest.raises(JavaStoreError), java_store.opened(root):
        pass
    send_singles(sender, 700, first=50)
    sender.store.close()
    assert file_count(root / "commitlog") > 1
    with java_store.opened(root) as session:
        with pytest.raises(StoreLocked):
            MessageStore.open(root, our_config(java_store.version))
        assert as_sent(theirs(session.dump().messages)) == sender.by_queue([])
        session.kill()
    with MessageStore.open(root, our_config(java_store.version)) as store:
        assert as_sent(our_listing(store).messages) == sender.by_queue([])
        assert len(store.query("Orders", "k8")) == len(sender.with_key("Orders", "k8")) > 0


def expire(sender: Sender) -> int:
    """Retention takes what is sent so far but for the last file; returns the log start."""
    sender.store.flush()
    sent_ms = sender.clock.wall_ms()
    sender.store.clean(manual=True)
    sender.clock.advance(80 * 3_600_000)
    start = sender.store.clean(manual=True)
    sender.clock.set_wall(sent_ms)
    return start


@pytest.mark.parametrize("lost", ["nothing", "queues", "checkpoint"])
def test_after_retention_the_minimum_is_the_same(
    java_store: JavaStore, sender: Sender, root: Path, lost: str
) -> None:
    """Trimmed queues; queues that begin in mid-file; a queue of which only the number is left."""
    for number in range(150):
        sender.put(Message("Gone", b"gone %d" % number))
    for number in range(700):
        sender.put(Message("Half", b"%0200d" % number, number % 2, keys=f"k{number % 50}"))
    start = expire(sender)
    sender.put(Message("Late", b"late"))
    assert start >= 2 * SMALL_LAYOUT.log_file_size
    sender.store.close()
    if lost == "queues":
        forget_derived(root)
    elif lost == "checkpoint":
        (root / "dispatch_checkpoint").unlink()
    config = our_config(java_store.version)
    with MessageStore.open(root, config, clock=sender.clock) as store:
        mine = our_listing(store)
    gone = [] if lost == "queues" else [("Gone", 0, 150, 150)]
    with java_store.opened(root) as session:
        found = session.dump()
        assert (theirs(found.messages), found.min_position) == (mine.messages, start)
        expected = [row for row in ranges(mine) if row[0] != "Gone"]
        assert [row for row in ranges(found) if row[0] != "Gone"] == expected
        assert [row for row in ranges(mine) if row[0] == "Gone"] == gone
        for topic, queue_id, _, max_offset in ranges(mine):
            _, done = session.perform("put", topic=topic, queue_id=queue_id, body=b"java")
            assert done["queue_offset"] == max_offset
        rows = theirs(session.dump().messages)
        assert [row["body"] for row in rows].count(b"java") == len(mine.queues)
        session.kill()
    with MessageStore.open(root, config, clock=sender.clock) as store:
        assert our_listing(store).messages == rows
