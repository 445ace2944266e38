"""Every put status that a store can produce: when it comes, its response code, what is stored."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.config import StoreConfig
from broker_core.errors import StoreFenced
from broker_core.protocol_codes import BrokerRole, FlushDiskType, PutStatus, ResponseCode
from broker_core.storage.files.file_system import DiskUsage
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.codec.codec_backends import HOST_V6, column
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import bodies, new_disk, open_small, rows, run_of

BODY_MAX = 4 << 20


def refused(store: MessageStore, disk: SimulatedDisk, status: PutStatus, put: Callable[[], Any]):
    """`put` answers `status` and leaves no byte behind."""
    end, tree = store.log_range[1], disk.tree()
    result = put()
    assert result.status is status, result
    assert result.remark
    assert not result.ok
    assert (result.position, result.queue_offset, result.message_id) == (-1, -1, "")
    assert store.log_range[1] == end
    assert disk.tree() == tree
    return result


def test_response_codes_are_those_of_the_wire() -> None:
    codes = {status.name: int(status.response_code) for status in PutStatus}
    assert codes == {
        "PUT_OK": 0,
        "FLUSH_DISK_TIMEOUT": 10,
        "FLUSH_SLAVE_TIMEOUT": 12,
        "SLAVE_NOT_AVAILABLE": 11,
        "SERVICE_NOT_AVAILABLE": 14,
        "CREATE_MAPPED_FILE_FAILED": 1,
        "MESSAGE_ILLEGAL": 13,
        "PROPERTIES_SIZE_EXCEEDED": 13,
        "OS_PAGE_CACHE_BUSY": 2,
        "IN_SYNC_REPLICAS_NOT_ENOUGH": 1,
        "UNKNOWN_ERROR": 1,
    }
    stored = {status.name for status in PutStatus if status.stored}
    assert stored == {"PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}
    assert PutStatus.OS_PAGE_CACHE_BUSY.response_code is ResponseCode.SYSTEM_BUSY


def test_ok_says_where_the_message_is() -> None:
    disk = new_disk()
    store = open_small(disk)
    first = store.put_now(Message("T", b"a", queue_id=3))
    second = store.put_now(Message("T", b"b", queue_id=3))
    assert (first.position, first.queue_offset, first.message_count) == (0, 0, 1)
    assert (second.position, second.queue_offset) == (first.end_position, 1)
    assert first.message_id == "7F00000100002A9F" + "0" * 16
    assert first.store_timestamp == disk.clock.wall_ms()
    assert bodies(store, "T", 3) == [b"a", b"b"]


def test_a_closed_store_is_not_available() -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"a"))
    store.close()
    tree = disk.tree()
    for put in (
        lambda: store.append(Message("T", b"b")),
        lambda: store.append_batch(rows(b"b")),
        lambda: store.append_group([run_of(b"b")]),
        lambda: store.put_now(Message("T", b"b")),
    ):
        assert put().status is PutStatus.SERVICE_NOT_AVAILABLE
    assert disk.tree() == tree


def test_a_slave_is_not_available() -> None:
    disk = new_disk()
    store = open_small(disk, broker_role=BrokerRole.SLAVE)
    for put in (
        lambda: store.append(Message("T", b"b")),
        lambda: store.append_batch(rows(b"b")),
        lambda: store.append_group([run_of(b"b")]),
    ):
        result = refused(store, disk, PutStatus.SERVICE_NOT_AVAILABLE, put)
        assert "slave" in result.remark


def test_a_full_disk_stops_puts_and_not_reads() -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"a"))
    disk.reported_usage = DiskUsage(91, 9)
    store.clean()
    for put in (
        lambda: store.append(Message("T", b"b")),
        lambda: store.append_batch(rows(b"b")),
        lambda: store.append_group([run_of(b"b")]),
    ):
        result = refused(store, disk, PutStatus.SERVICE_NOT_AVAILABLE, put)
        assert "DISK_FULL" in result.remark
    assert bodies(store, "T") == [b"a"]
    disk.reported_usage = DiskUsage(86, 14)
    store.clean()
    assert not store.append(Message("T", b"b")).ok, "above the forcible level the flag stays"
    disk.reported_usage = DiskUsage(85, 15)
    store.clean()
    assert store.put_now(Message("T", b"b")).ok


def test_a_fenced_store_is_not_available() -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"a"))
    disk.fail(disk.operation_count + 1, errno.EIO, sticky=True, methods={"sync"})
    with pytest.raises(StoreFenced):
        store.put_now(Message("T", b"b"))
    assert store.fenced
    end = store.log_range[1]
    for put in (
        lambda: store.append(Message("T", b"c")),
        lambda: store.append_batch(rows(b"c")),
        lambda: store.append_group([run_of(b"c")]),
    ):
        result = put()
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "FENCED" in result.remark
    assert store.log_range[1] == end
    assert bodies(store, "T") == [b"a"], "what was not acknowledged is not shown"


def test_a_file_that_cannot_be_created() -> None:
    disk = new_disk()
    store = open_small(disk)
    disk.space_limit = 8 << 10
    for put in (
        lambda: store.append(Message("T", b"b")),
        lambda: store.append_batch(rows(b"b")),
        lambda: store.append_batch(rows(b"b"), together=True),
        lambda: store.append_group([run_of(b"b")]),
    ):
        result = refused(store, disk, PutStatus.CREATE_MAPPED_FILE_FAILED, put)
        assert "commitlog/" in result.remark
    disk.space_limit = None
    assert store.put_now(Message("T", b"b")).ok


def test_a_batch_whose_later_files_do_not_fit_is_not_begun() -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"first"))
    disk.space_limit = sum(map(len, disk.tree().values())) + (40 << 10)
    big = [b"x" * 4000] * 40
    put = [lambda: store.append_batch(rows(*big)), lambda: store.append_group([run_of(*big)])]
    for attempt in put:
        refused(store, disk, PutStatus.CREATE_MAPPED_FILE_FAILED, attempt)
    assert store.put_now(Message("T", b"second")).ok, "the refused attempt gave its space back"
    assert bodies(store, "T") == [b"first", b"second"]


ILLEGAL = {
    "topic too long": Message("t" * 128, b""),
    "retry topic too long": Message("%RETRY%" + "t" * 249, b""),
    "empty topic": Message("", b""),
    "dots": Message("..", b""),
    "slash": Message("a/b", b""),
    "NUL": Message("a\0b", b""),
    "look-alike": Message("Тopic", b""),
    "percent": Message("%", b""),
    "device": Message("CON", b""),
    "10 KB": Message("x" * 10_240, b""),
    "reserved": Message("rmq_sys_append_group", b""),
    "flag too wide": Message("T", b"", flag=1 << 31),
    "sys flag too wide": Message("T", b"", sys_flag=1 << 31),
    "born too wide": Message("T", b"", born_timestamp=1 << 63),
    "larger than a file": Message("T", b"x" * (16 << 10)),
}


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize("warm", [False, True], ids=["new queue", "known queue"])
def test_illegal_messages(name: str, warm: bool) -> None:
    disk = new_disk()
    store = open_small(disk)
    if warm:
        store.put_now(Message("T", b"before"))
    refused(store, disk, PutStatus.MESSAGE_ILLEGAL, lambda: store.append(ILLEGAL[name]))
    assert store.put_now(Message("T", b"after")).ok
    assert bodies(store, "T")[-1:] == [b"after"]


def test_the_longest_legal_topics() -> None:
    store = open_small(new_disk())
    for topic in ("t" * 127, "%RETRY%" + "g" * 248):
        assert store.put_now(Message(topic, b"a")).ok
        assert bodies(store, topic) == [b"a"]


ILLEGAL_BATCHES = {
    "no rows": rows(),
    "no queues": rows(b"a", queues=()),
    "a queue twice": rows(b"a", queues=((b"T", 0), (b"T", 0))),
    "queue index out of range": rows(b"a", queue_index=b"\1\0\0\0"),
    "offsets go back": rows(b"a", body=(b"abc", b"\3\0\0\0\1\0\0\0", 4)),
    "separator in tags": rows(b"a", tags=column(b"a\x02b")),
    "separator in keys": rows(b"a", keys=column(b"a\x01b")),
    "host": rows(b"a", store_host=b"abc"),
    "width": rows(b"a", body=(b"a", b"\0\0\0\0\1\0\0\0", 5)),
    "second row larger than a file": rows(b"a", b"x" * (16 << 10)),
    "bad topic": rows(b"a", topic=b"../x"),
    "reserved topic": rows(b"a", topic=b"rmq_sys_append_group"),
}


@pytest.mark.parametrize("name", ILLEGAL_BATCHES)
@pytest.mark.parametrize("together", [False, True])
def test_illegal_batches(name: str, together: bool) -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"before"))
    batch = ILLEGAL_BATCHES[name]
    refused(
        store,
        disk,
        PutStatus.MESSAGE_ILLEGAL,
        lambda: store.append_batch(batch, together=together),
    )
    assert bodies(store, "T") == [b"before"]


def test_a_batch_that_must_stay_together_fits_into_one_file() -> None:
    disk = new_disk()
    store = open_small(disk)
    values = [b"x" * 4000] * 4
    refused(
        store,
        disk,
        PutStatus.MESSAGE_ILLEGAL,
        lambda: store.append_batch(rows(*values), together=True),
    )
    assert store.append_batch(rows(*values)).ok


ILLEGAL_RUNS = {
    "store host of another size": run_of(b"a", store_host=HOST_V6),
    "other topic": run_of(b"a")._replace(queues=((b"U", 0),)),
    "other queue id": run_of(b"a")._replace(queues=((b"T", 1),)),
    "no queue": run_of(b"a")._replace(queues=()),
    "a queue twice": run_of(b"a")._replace(queues=((b"T", 0), (b"T", 0))),
    "cut": run_of(b"a")._replace(records=bytes(run_of(b"a").records)[:-1]),
    "damaged": run_of(b"a")._replace(records=bytes(run_of(b"a").records)[:-3] + b"99\x02"),
    "garbage": run_of(b"a")._replace(records=b"\xff" * 200),
    "reserved topic": run_of(b"a", topic=b"rmq_sys_append_group"),
    "bad topic": run_of(b"a")._replace(queues=((b"../x", 0),)),
    "larger than a file": run_of(b"x" * (16 << 10)),
}


@pytest.mark.parametrize("name", ILLEGAL_RUNS)
def test_illegal_groups(name: str) -> None:
    disk = new_disk()
    store = open_small(disk)
    store.put_now(Message("T", b"before"))
    good, bad = run_of(b"good", topic=b"G"), ILLEGAL_RUNS[name]
    refused(store, disk, PutStatus.MESSAGE_ILLEGAL, lambda: store.append_group([good, bad]))
    store.put_now(Message("T", b"after"))
    assert bodies(store, "T") == [b"before", b"after"]
    again = open_small(disk.kill())
    assert bodies(again, "T") == [b"before", b"after"]
    assert again.offsets("G", 0) == (0, 0)


def test_a_group_obeys_the_limit_of_single_messages() -> None:
    disk = new_disk()
    store = open_small(disk, message_size_max=300)
    over = run_of(b"small", b"x" * 301)
    for attempt in (
        lambda: store.append(Message("T", b"x" * 301)),
        lambda: store.append_batch(rows(b"small", b"x" * 301)),
        lambda: store.append_group([run_of(b"good"), over]),
    ):
        result = refused(store, disk, PutStatus.MESSAGE_ILLEGAL, attempt)
        assert result.remark
    # The limit counts the body, not the record.
    result = store.append_group([run_of(b"x" * 300, tags=column(b"t" * 200))])
    assert result.ok
    store.flush()
    assert bodies(store, "T") == [b"x" * 300]


def test_a_group_over_its_limit_or_with_a_note_larger_than_a_file() -> None:
    disk = new_disk()
    store = open_small(disk, group_size_max=1000)
    over = [run_of(*[b"x" * 100] * 10)]
    refused(store, disk, PutStatus.MESSAGE_ILLEGAL, lambda: store.append_group(over))
    note = b"n" * (16 << 10)
    refused(store, disk, PutStatus.MESSAGE_ILLEGAL, lambda: store.append_group([], note))


def test_body_limit_of_4_mib() -> None:
    disk = new_disk()
    store = open_small(disk, commit_log_file_size=16 << 20)
    over = Message("T", bytes(BODY_MAX + 1))
    for _ in ("new queue", "known queue"):
        assert store.append(Message("T", bytes(BODY_MAX))).ok
        result = refused(store, disk, PutStatus.MESSAGE_ILLEGAL, lambda: store.append(over))
        assert str(BODY_MAX) in result.remark
    batch = rows(b"a", bytes(BODY_MAX + 1))
    refused(store, disk, PutStatus.MESSAGE_ILLEGAL, lambda: store.append_batch(batch))


@pytest.mark.parametrize("warm", [False, True], ids=["new queue", "known queue"])
def test_properties_of_at_most_32767_bytes(warm: bool) -> None:
    disk = new_disk()
    store = open_small(disk, commit_log_file_size=256 << 10)
    if warm:
        store.put_now(Message("T", b""))
    room = 32767 - len("p\x01\x02") - len("__CRC32#\x010123456789\x02")
    over = Message("T", b"", properties={"p": "v" * (room + 1)})
    refused(store, disk, PutStatus.PROPERTIES_SIZE_EXCEEDED, lambda: store.append(over))
    keys = Message("T", b"", keys="k" * 32767)
    refused(store, disk, PutStatus.PROPERTIES_SIZE_EXCEEDED, lambda: store.append(keys))
    assert store.append(Message("T", b"", properties={"p": "v" * room})).ok


def test_a_slow_append_makes_the_page_cache_busy_for_a_while() -> None:
    disk = new_disk()
    # Not flushed, so that the store into the map is the only operation of an append.
    store = open_small(disk, flush_disk_type=FlushDiskType.ASYNC_FLUSH, flush_interval_ms=60_000)
    store.put_now(Message("T", b"a"))
    disk.on_operation = lambda _: disk.clock.advance(700)
    assert store.append(Message("T", b"slow, but not too slow")).ok
    disk.on_operation = None
    assert store.append(Message("T", b"b")).ok
    disk.on_operation = lambda _: disk.clock.advance(1_001)
    assert store.append_batch(rows(b"very slow")).ok
    disk.on_operation = None
    for put in (
        lambda: store.append(Message("T", b"c")),
        lambda: store.append_batch(rows(b"c")),
        lambda: store.append_group([run_of(b"c")]),
    ):
        result = refused(store, disk, PutStatus.OS_PAGE_CACHE_BUSY, put)
        assert result.remark.startswith("[PC_SYNCHRONIZED]broker busy")
    disk.clock.advance(1_001)
    assert store.append(Message("T", b"d")).ok
    store.flush()
    assert bodies(store, "T")[-1] == b"d"


class StuckDisk(SimulatedDisk):
    """A disk whose syncs of the log wait until the test lets them go."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.stuck = False
        self.reached = threading.Event()
        self.release = threading.Event()

    def operation(self, method: str, path: str, depth: int = 2) -> OSError | None:
        if self.stuck and method == "sync" and path.startswith("commitlog"):
            self.reached.set()
            assert self.release.wait(300)
            self.stuck = False
        return super().operation(method, path, depth + 1)


def test_a_stuck_flush_times_out_and_the_message_stays(run_async: Callable[..., Any]) -> None:
    disk = StuckDisk()

    async def scenario() -> None:
        store = open_small(disk, sync_flush_timeout_ms=5_000)
        await store.start()
        assert (await store.put(Message("T", b"a"))).ok
        disk.stuck = True
        waiting = asyncio.create_task(store.put(Message("T", b"b")))
        batch = asyncio.create_task(store.put_batch(rows(b"c")))
        assert await asyncio.to_thread(disk.reached.wait, 300)
        disk.clock.advance(5_001)
        for task in (waiting, batch):
            result = await task
            assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
            assert result.status.stored
            assert result.position > 0
        assert bodies(store, "T") == [b"a"], "not durable, so not visible"
        disk.release.set()
        store.flush()
        assert bodies(store, "T") == [b"a", b"b", b"c"]
        store.close()

    run_async(scenario())


def test_without_waiting_the_answer_comes_at_once(run_async: Callable[..., Any]) -> None:
    disk = StuckDisk()

    async def scenario() -> None:
        store = open_small(disk)
        await store.start()
        await store.put(Message("T", b"a"))
        disk.stuck = True
        for value in ("false", "FALSE", "False"):
            result = await store.put(Message("T", b"b", properties={"WAIT": value}))
            assert result.ok
            assert store.flushed_position < result.end_position
        disk.release.set()
        result = await store.put(Message("T", b"c", properties={"WAIT": "true"}))
        assert result.ok
        assert store.flushed_position >= result.end_position
        store.close()

    run_async(scenario())


def test_after_a_failed_sync_the_outcome_is_unknown(run_async: Callable[..., Any]) -> None:
    disk = new_disk()

    async def scenario() -> None:
        store = open_small(disk)
        await store.start()
        assert (await store.put(Message("T", b"a"))).ok
        disk.fail(disk.operation_count + 1, errno.EIO, sticky=True, methods={"sync"})
        results = await asyncio.gather(*(store.put(Message("T", b"b")) for _ in range(5)))
        statuses = {result.status for result in results}
        assert statuses <= {PutStatus.UNKNOWN_ERROR, PutStatus.SERVICE_NOT_AVAILABLE}
        assert results[0].status is PutStatus.UNKNOWN_ERROR
        assert (await store.put(Message("T", b"c"))).status is PutStatus.SERVICE_NOT_AVAILABLE
        store.close()

    run_async(scenario())
    store = open_small(disk.kill())
    assert bodies(store, "T")[0] == b"a"


def test_asynchronous_flush_answers_before_the_sync(
    run_async: Callable[..., Any], tmp_path: Path
) -> None:
    async def scenario() -> None:
        config = StoreConfig(
            commit_log_file_size=64 << 10,
            index_hash_slots=8,
            index_entries_max=64,
            flush_disk_type=FlushDiskType.ASYNC_FLUSH,
            flush_interval_ms=3_600_000,
        )
        store = MessageStore.open(tmp_path, config)
        await store.start()
        result = await store.put(Message("T", b"a"))
        assert result.ok
        assert store.flushed_position == 0
        group = await store.put_group([run_of(b"g", topic=b"G")])
        assert group.ok
        assert store.flushed_position >= group.end_position, "a group waits in every mode"
        store.close()

    run_async(scenario())
