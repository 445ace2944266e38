"""Every public call with wrong types, sizes and names: a typed error, nothing written or lost."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import errors
from broker_core.codec.records.staged_block import StagedPart
from broker_core.config import StoreConfig
from broker_core.errors import InvalidArgument, RmqError, StoreClosed
from broker_core.protocol_codes import GetStatus, PutStatus
from broker_core.storage.log.commit_log import TemplateRun
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from broker_core.store.writes.put_result import PutResult
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, open_small, rows, run_of

# Nothing that a caller may pass on purpose is among them.
NOT_TEXT = (None, 5, 1.5, b"T", ["T"], object(), True, float("nan"))
NOT_NUMBERS = (None, "1", 1.5, b"1", [1], object(), True, float("nan"))
OUT_OF_RANGE = (-1, 1 << 63, -(1 << 70), 10**30)
ODD_NAMES = (
    "", ".", "..", "/", "../../etc/passwd", "a/b", "a\\b", "a\0b", "\0", "x" * 10_240, "Тopic",
    "tоpic", "ｔopic", "T\u200b", "%", "%%", "CON", "nul", "com1", " ", "T ", "a b", "é", "😀",
    "\ud800", "a\nb", "\x7f", "~", "-" * 128, "lock", "abort",
)  # fmt: skip


class Untouched:
    """A store with one message, which every test leaves exactly as it was."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.store = open_small(self.disk)
        self.store.put_now(Message("T", b"kept", tags="tag", keys="key"))
        self.tree = self.disk.tree()
        self.log_end = self.store.log_range[1]

    def refuses(self, call: Callable[[], Any], kind: type[BaseException] = InvalidArgument) -> None:
        with pytest.raises(kind) as caught:
            call()
        assert isinstance(caught.value, RmqError)
        assert str(caught.value), "the error says what and why"
        assert len(str(caught.value)) < 1_000, "a huge value is not quoted in full"
        self.check()

    def check(self) -> None:
        assert self.disk.tree() == self.tree
        assert self.store.log_range[1] == self.log_end
        assert bodies(self.store, "T") == [b"kept"]


@pytest.fixture
def untouched() -> Iterator[Untouched]:
    case = Untouched()
    yield case
    case.check()
    store = open_small(case.disk.kill())
    assert bodies(store, "T") == [b"kept"], "lost"
    assert store.put_now(Message("T", b"next")).queue_offset == 1


@pytest.mark.parametrize("root", [None, 5, 1.5, b"path", ["a"], object()])
def test_open_needs_a_path_or_a_file_system(root: Any) -> None:
    with pytest.raises(InvalidArgument):
        MessageStore.open(root)


def test_open_needs_a_configuration() -> None:
    disk = new_disk()
    for config in ("x", 5, {}, StoreConfig):
        with pytest.raises(InvalidArgument):
            MessageStore.open(disk, config)  # type: ignore[arg-type]
    assert disk.files() == []


def test_open_of_unusual_paths(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")
    for path in (file, file / "below", str(tmp_path / "a\0b"), tmp_path / ("x" * 300)):
        with pytest.raises(RmqError):
            MessageStore.open(path)
    assert file.read_bytes() == b"data"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


MESSAGE_FIELDS = {
    "topic": NOT_TEXT,
    "body": (None, 5, "text", [1], object(), {}),
    "queue_id": (*NOT_NUMBERS, -1, 1 << 31, 1 << 70, (1,)),
    "tags": (*NOT_TEXT, "a\x01b", "a\x02b", "\ud800"),
    "keys": (*NOT_TEXT, "a\x01b", "a\x02b", "\ud800"),
    "properties": (
        None, 5, "a", [("a", "b")], {1: "a"}, {"a": 1}, {"a": None}, {"": 0}, {"a\x01": "b"},
        {"a": "b\x02"}, {"TAGS": "x"}, {"KEYS": "x"}, {"WAIT": 0}, {"WAIT": False}, {"a": b"b"},
        {"a": "\ud800"},
    ),
    "flag": NOT_NUMBERS,
    "sys_flag": NOT_NUMBERS,
    "born_timestamp": ("1", 1.5, b"1", [1], object(), True, float("nan")),
    "born_host": (5, "127.0.0.1", ("a",), ("localhost", 1), (None, 1), ("127.0.0.1", "x"),
                  ("127.0.0.1", 1 << 40), ("127.0.0.1", 1, 2), [], ("127.0.0.1", None), ()),
    "reconsume_times": (*NOT_NUMBERS, -1, 1 << 31),
    "prepared_transaction_offset": NOT_NUMBERS,
}  # fmt: skip


@pytest.mark.parametrize("field", MESSAGE_FIELDS)
@pytest.mark.parametrize("queue_id", [0, 7], ids=["known queue", "new queue"])
def test_message_fields(untouched: Untouched, field: str, queue_id: int) -> None:
    assert set(MESSAGE_FIELDS) == set(Message._fields)
    for value in MESSAGE_FIELDS[field]:
        fields = {"topic": "T", "body": b"x", "queue_id": queue_id, field: value}
        message_of = lambda fields=fields: untouched.store.append(Message(**fields))  # noqa: E731
        untouched.refuses(message_of)


def test_only_messages_and_batches_are_put(untouched: Untouched) -> None:
    store = untouched.store
    for value in (None, 5, "T", b"x", ("T", b"x"), {}, rows(b"a"), object()):
        untouched.refuses(lambda value=value: store.append(value))
    for value in (None, 5, "T", b"x", (), {}, Message("T", b"a"), object()):
        untouched.refuses(lambda value=value: store.append_batch(value))


BATCH_FIELDS: dict[str, tuple[Any, ...]] = {
    "count": (None, "1", 1.5, b"1", [1]),
    "queues": (None, 5, "T", (("T", 0),), ((b"T", "0"),), ((b"T", None),), ((b"T",),), (b"T",),
               ((b"T", 0, 1),), ((b"T", 1.5),), [5], ((None, 0),)),
    "queue_index": (5, "0", [0], object()),
    "body": (None, 5, b"a", "a", (b"a",), (b"a", b"\0" * 8), (None, b"\0" * 8, 4), (b"a", None, 4),
             ("a", b"\0" * 8, 4), (b"a", [0, 1], 4), (b"a", b"\0" * 8, "4")),
    "tags": (5, b"a", ("a", b"\0" * 8, 4), (b"a", [0, 1], 4)),
    "keys": (5, b"a", ("a", b"\0" * 8, 4), (b"a", [0, 1], 4)),
    "properties": (5, b"a", ("a", b"\0" * 8, 4), (b"a", [0, 1], 4)),
    "flag": (None, "1", 1.5, b"1", [1]),
    "sys_flag": (None, "1", 1.5, b"1", [1]),
    "born_timestamp": (None, "1", 1.5, [1], object()),
    "born_host": (None, 5, "127.0.0.1"),
    "store_host": (None, 5, "127.0.0.1"),
    "reconsume_times": (None, "1", 1.5, b"1", [1]),
    "prepared_offset": (None, "1", 1.5, b"1", [1]),
}  # fmt: skip


@pytest.mark.parametrize("field", BATCH_FIELDS)
def test_batch_fields(untouched: Untouched, field: str) -> None:
    for value in BATCH_FIELDS[field]:
        batch = rows(b"a")._replace(**{field: value})
        untouched.refuses(lambda batch=batch: untouched.store.append_batch(batch))


@pytest.mark.parametrize(
    "runs",
    [
        None, 5, "x", {}, object(), [5], [None], [rows(b"a")], [(((b"T", 0),), b"")],
        [TemplateRun(None, b"")], [TemplateRun((("T", 0),), b"")],
        [TemplateRun(((b"T", -1),), b"")],
        [TemplateRun(((b"T", "0"),), b"")], [TemplateRun(((b"T",),), b"")],
        [TemplateRun([(b"T", 0)], b"")], [TemplateRun(((b"T", 0),), "text")],
        [TemplateRun(((b"T", 0),), None)], [TemplateRun(((b"T", True),), b"")],
        [TemplateRun(((b"T", 1 << 31),), b"")],
    ],
)  # fmt: skip
def test_groups(untouched: Untouched, runs: Any) -> None:
    untouched.refuses(lambda: untouched.store.append_group(runs))
    for note in (None, 5, "note", bytearray(b"x"), [b"x"], b"n" * ((1 << 20) + 1)):
        untouched.refuses(lambda note=note: untouched.store.append_group([run_of(b"a")], note))


def test_topics_that_are_no_text(untouched: Untouched) -> None:
    store = untouched.store
    for topic in NOT_TEXT:
        for call in (
            lambda topic=topic: store.get(topic, 0, 0),
            lambda topic=topic: store.read_columns(topic, 0, 0, 1, 1),
            lambda topic=topic: store.query(topic, "key"),
            lambda topic=topic: store.offset_by_time(topic, 0, 0),
            lambda topic=topic: store.offsets(topic, 0),
            lambda topic=topic: store.durable_offset(topic, 0),
            lambda topic=topic: store.store_time(topic, 0, 0),
            lambda topic=topic: store.delete_topic(topic),
        ):
            untouched.refuses(call)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_invalid_names_are_refused_by_puts_and_unknown_to_reads(
    untouched: Untouched, name: str
) -> None:
    store = untouched.store
    if name not in ("lock", "abort"):
        try:
            assert store.append(Message(name, b"x")).status is PutStatus.MESSAGE_ILLEGAL
        except InvalidArgument:
            assert name == "\ud800"
        untouched.check()
    assert store.get(name, 0, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.offsets(name, 0) == (0, 0)
    assert store.durable_offset(name, 0) == 0
    assert store.offset_by_time(name, 0, 0) == 0
    assert store.store_time(name, 0, 0) is None
    assert store.query(name, "key") == []
    assert store.delete_topic(name) == 0
    with pytest.raises(InvalidArgument):
        store.read_columns(name, 0, 0, 1, 1)
    untouched.check()


def test_keys_that_were_never_stored(untouched: Untouched) -> None:
    store = untouched.store
    for key in (*ODD_NAMES, "key ", " key", "KEY", "k" * (1 << 16)):
        assert store.query("T", key) == []
    for key in NOT_TEXT:
        untouched.refuses(lambda key=key: store.query("T", key))


NUMBERS: dict[str, Callable[..., Callable[[MessageStore], Any]]] = {
    "get.queue_id": lambda n: lambda s: s.get("T", n, 0),
    "get.count_max": lambda n: lambda s: s.get("T", 0, 0, n if n is not None else "none"),
    "get.size_max": lambda n: lambda s: s.get("T", 0, 0, size_max=n if n is not None else ""),
    "columns.queue_id": lambda n: lambda s: s.read_columns("T", n, 0, 1, 1),
    "columns.start": lambda n: lambda s: s.read_columns("T", 0, n, 1, 1),
    "columns.until": lambda n: lambda s: s.read_columns("T", 0, 0, n, 1),
    "columns.wanted": lambda n: lambda s: s.read_columns("T", 0, 0, 1, n),
    "message_at": lambda n: lambda s: s.message_at(n),
    "record_at": lambda n: lambda s: s.record_at(n),
    "query.count_max": lambda n: lambda s: s.query("T", "key", n),
    "query.begin": lambda n: lambda s: s.query("T", "key", 1, n),
    "query.end": lambda n: lambda s: s.query("T", "key", 1, 0, n),
    "offset_by_time.queue_id": lambda n: lambda s: s.offset_by_time("T", n, 0),
    "offset_by_time.time": lambda n: lambda s: s.offset_by_time("T", 0, n),
    "offsets.queue_id": lambda n: lambda s: s.offsets("T", n),
    "durable_offset.queue_id": lambda n: lambda s: s.durable_offset("T", n),
    "store_time.queue_id": lambda n: lambda s: s.store_time("T", n, 0),
    "store_time.offset": lambda n: lambda s: s.store_time("T", 0, n),
}


@pytest.mark.parametrize("call", NUMBERS)
def test_numbers(untouched: Untouched, call: str) -> None:
    for number in (*NOT_NUMBERS, *OUT_OF_RANGE):
        untouched.refuses(lambda number=number: NUMBERS[call](number)(untouched.store))


def test_large_numbers_are_answered(untouched: Untouched) -> None:
    store, large = untouched.store, (1 << 63) - 1
    assert store.get("T", large, 0).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.get("T", 0, 0, large, size_max=large).message_count == 1
    for offset, status in (
        (large, GetStatus.OFFSET_OVERFLOW_BADLY),
        (10**30, GetStatus.OFFSET_OVERFLOW_BADLY),
        (-(10**30), GetStatus.OFFSET_TOO_SMALL),
    ):
        assert store.get("T", 0, offset).status is status
    assert store.message_at(large) is None
    assert store.offset_by_time("T", 0, large) == 1
    assert store.store_time("T", 0, large) is None
    assert len(store.query("T", "key", large, 0, large)) == 1
    untouched.refuses(lambda: store.read_columns("T", 0, 0, large, 1))
    untouched.refuses(lambda: store.read_columns("T", 0, 1, 0, 1))


def test_a_position_inside_a_record_is_not_a_message(untouched: Untouched) -> None:
    for position in range(1, untouched.log_end):
        untouched.refuses(
            lambda position=position: untouched.store.message_at(position), errors.CorruptRecord
        )
    assert untouched.store.message_at(untouched.log_end) is None


def test_other_arguments(untouched: Untouched) -> None:
    store = untouched.store
    untouched.refuses(lambda: store.get("T", 0, 0, tag_codes=5))
    for offset in NOT_NUMBERS:
        untouched.refuses(lambda offset=offset: store.get("T", 0, offset))
    for listener in (None, 5, "f"):
        untouched.refuses(lambda listener=listener: store.on_arrival(listener))
        untouched.refuses(lambda listener=listener: store.before_clean(listener))
    for number in NOT_NUMBERS:
        untouched.refuses(lambda number=number: store.next_offset("T", number))
        untouched.refuses(lambda number=number: store.group_ranges(number, 1))
        untouched.refuses(lambda number=number: store.group_ranges(0, number))


def test_staging(untouched: Untouched) -> None:
    staging = untouched.store.staging
    for value in (None, 5, b"x", [], "../x", "..", "/etc/passwd", "a\0b", "x" * 10_240, "f" * 32):
        for call in (
            lambda value=value: staging.append(value, run_of(b"a"), 1),
            lambda value=value: staging.seal(value),
        ):
            untouched.refuses(call, errors.StagingRefused)
        if isinstance(value, str):
            assert staging.drop(value) is False
            batch = StagedPart(value, 1, 1, 1)
            for_one = lambda batch=batch: untouched.store.publish_now([batch])  # noqa: E731
            untouched.refuses(for_one, errors.StagingRefused)
        else:
            untouched.refuses(lambda value=value: staging.drop(value))
    for batches in (None, 5, "x", [5], [("a", 1, 2, 3)], [StagedPart(5, 1, 1, 1)],
                    [StagedPart("f" * 32, "1", 1, 1)], {}):  # fmt: skip
        untouched.refuses(lambda batches=batches: untouched.store.publish_now(batches))


def test_staged_runs_are_checked_when_they_come() -> None:
    disk = new_disk()
    store = open_small(disk)
    staging_id = store.staging.begin()
    tree = disk.tree()
    good = run_of(b"a")
    for run, count in (
        (None, 1), (b"x", 1), (good, "1"), (good, -1), (good, None), (good, 1.0), (good, True),
        (TemplateRun((("T", 0),), b""), 1), (TemplateRun(((b"T", 0),), "x"), 1),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            store.staging.append(staging_id, run, count)
        assert disk.tree() == tree


CLOSED_CALLS: dict[str, Callable[[MessageStore], Any]] = {
    "flush": lambda s: s.flush(),
    "clean": lambda s: s.clean(),
    "on_arrival": lambda s: s.on_arrival(print),
    "before_clean": lambda s: s.before_clean(print),
    "set_retention": lambda s: s.set_retention(StoreConfig()),
    "group_ranges": lambda s: s.group_ranges(0, 0),
    "next_offset": lambda s: s.next_offset("T", 0),
    "inspect_runs": lambda s: s.inspect_runs([]),
    "prepare_room": lambda s: asyncio.run(s.prepare_room(1)),
    "get": lambda s: s.get("T", 0, 0),
    "read_columns": lambda s: s.read_columns("T", 0, 0, 1, 1),
    "message_at": lambda s: s.message_at(0),
    "disk_usage": lambda s: s.disk_usage(),
    "prepared_offsets": lambda s: s.prepared_offsets(0),
    "record_at": lambda s: s.record_at(0),
    "units": lambda s: s.units("T", 0, 0, 1),
    "query": lambda s: s.query("T", "key"),
    "query_some": lambda s: s.query_some("T", "key", 1, 0, 1),
    "offset_by_time": lambda s: s.offset_by_time("T", 0, 0),
    "offsets": lambda s: s.offsets("T", 0),
    "durable_offset": lambda s: s.durable_offset("T", 0),
    "store_time": lambda s: s.store_time("T", 0, 0),
    "queues": lambda s: s.queues(),
    "delete_topic": lambda s: s.delete_topic("T"),
    "staging": lambda s: s.staging,
    "replication": lambda s: s.replication,
    "message_ids": lambda s: s.message_ids(PutResult(PutStatus.PUT_OK)),
    "publish_now": lambda s: s.publish_now([]),
}
ANSWER_A_STATUS = {"append", "append_batch", "append_group", "append_text", "put", "put_batch",
                   "put_group", "put_now"}  # fmt: skip
# What a caller may still ask of a closed store.
KEEP_WORKING = {"close", "stats", "boot_id", "store_id", "store_host", "is_async", "epoch",
                "recovery", "log_range",
                "fenced", "flushed_position", "dispatched_position", "when_durable", "acknowledged",
                "when_acknowledged", "when_on_disk",
                "group_acknowledged", "group_on_disk"}  # fmt: skip
ASYNC = {"start", "publish"}


def test_every_public_call_is_in_this_file() -> None:
    public = {name for name in vars(MessageStore) if not name.startswith("_")} - {"open"}
    assert public == CLOSED_CALLS.keys() | ANSWER_A_STATUS | KEEP_WORKING | ASYNC


@pytest.mark.parametrize("name", CLOSED_CALLS)
def test_a_closed_store_raises_store_closed(name: str) -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"a", keys="key"))
    store.close()
    tree = disk.tree()
    with pytest.raises(StoreClosed):
        CLOSED_CALLS[name](store)
    store.close()
    assert disk.tree() == tree


def test_a_closed_store_cannot_be_served_or_published_to(run_async: Callable[..., Any]) -> None:
    store = open_small(new_disk())
    store.close()
    for call in (store.start, lambda: store.publish([])):
        with pytest.raises(StoreClosed):
            run_async(call())


def test_a_closed_store_still_tells_its_state() -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"a"))
    before = (store.store_id, store.epoch, store.log_range, store.flushed_position, store.fenced)
    store.close()
    after = (store.store_id, store.epoch, store.log_range, store.flushed_position, store.fenced)
    assert before == after
    assert store.stats()["put_messages"] == 1
    assert store.recovery.clean is False


def test_a_kept_staging_area_is_closed_with_its_store() -> None:
    disk = new_disk()
    store = open_small(disk)
    staging = store.staging
    staging_id = staging.begin()
    store.close()
    tree = disk.tree()
    for call in (staging.begin, lambda: staging.append(staging_id, run_of(b"a"), 1)):
        with pytest.raises((StoreClosed, errors.StagingRefused)):
            call()
    assert staging.drop(staging_id) is False
    assert disk.tree() == tree


def test_an_error_while_opening_leaves_nothing_locked() -> None:
    disk = new_disk()
    open_small(disk).close()
    state = disk.content("store_state")
    disk.overwrite("store_state", _with_version(state, 99))
    tree = disk.tree()
    with pytest.raises(errors.StoreFormatUnsupported, match="99"):
        open_small(disk)
    assert disk.tree() == tree
    disk.overwrite("store_state", state)
    open_small(disk).close()


def _with_version(state: bytes, version: int) -> bytes:
    """Both slots, as a newer release would write them."""
    slots = []
    for slot in (state[:512], state[512:1024]):
        head = slot[:4] + version.to_bytes(4, "big") + slot[8:96]
        slots.append((head + zlib.crc32(head).to_bytes(4, "big")).ljust(512, b"\0"))
    return b"".join(slots)


def test_two_stores_on_one_directory(tmp_path: Path) -> None:
    config = StoreConfig(commit_log_file_size=16 << 10, index_hash_slots=8, index_entries_max=32)
    first = MessageStore.open(tmp_path, config)
    first.put_now(Message("T", b"a"))
    with pytest.raises(errors.StoreLocked):
        MessageStore.open(tmp_path, config)
    first.put_now(Message("T", b"b"))
    assert bodies(first, "T") == [b"a", b"b"]
    first.close()
    with MessageStore.open(tmp_path, config) as second:
        assert bodies(second, "T") == [b"a", b"b"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("commitlog/notes.txt", b"hello"),
        ("commitlog/00000000000000000001", bytes(16 << 10)),
        ("commitlog/0000000000000000000x", b""),
    ],
)
def test_foreign_files_in_the_log_are_named(path: str, content: bytes) -> None:
    disk = SimulatedDisk(clock=new_disk().clock)
    disk.put(path, content)
    with pytest.raises(errors.StoreUnusable, match="commitlog"):
        open_small(disk)
    assert disk.content(path) == content


def test_another_file_size_is_refused() -> None:
    disk = new_disk()
    with open_small(disk) as store:
        store.put_now(Message("T", b"a"))
    tree = disk.tree()
    for size in (8 << 10, 32 << 10):
        with pytest.raises((errors.StoreUnusable, errors.CorruptStore), match="size"):
            open_small(disk, commit_log_file_size=size)
        assert disk.tree() == tree
    assert bodies(open_small(disk), "T") == [b"a"]
