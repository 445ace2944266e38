"""Runs that were verified ahead of their append are not verified again; changes are detected."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker_core.config import StoreConfig
from broker_core.errors import CorruptRecord, InvalidArgument, MalformedRecord
from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.storage.log.commit_log import TemplateRun
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.store.small_store import SMALL, bodies, new_disk, numbered, open_small, run_of


def _damaged(run: TemplateRun) -> TemplateRun:
    """The same run with one bit of a body turned."""
    data = bytearray(run.records)
    at = data.index(b"7.....")
    data[at + 3] ^= 1
    return run._replace(records=bytes(data))


def test_inspected_runs_are_stored_like_others() -> None:
    plain, ahead = open_small(new_disk()), open_small(new_disk())
    runs = [run_of(*numbered(100, 300)), run_of(*numbered(7, 300, first=100))]
    first = plain.append_group(runs, b"note")
    second = ahead.append_group(runs, b"note", ahead.inspect_runs(runs))
    assert first.ok and second.ok
    assert first[:6] == second[:6]
    for store in (plain, ahead):
        store.flush()
        assert bodies(store, "T") == numbered(107, 300)


def test_damage_is_found_by_the_inspection() -> None:
    store = open_small(new_disk())
    with pytest.raises(MalformedRecord):
        store.inspect_runs([_damaged(run_of(*numbered(10, 300)))])


def test_damage_after_the_inspection_is_never_served() -> None:
    store = open_small(new_disk())
    run = run_of(*numbered(10, 300))
    result = store.append_group([_damaged(run)], b"", store.inspect_runs([run]))
    assert result.ok
    store.flush()
    with pytest.raises(CorruptRecord):
        bodies(store, "T")


@pytest.mark.parametrize("other", [9, 11])
def test_other_runs_than_the_inspected_ones_are_refused(other: int) -> None:
    store = open_small(new_disk())
    inspected = store.inspect_runs([run_of(*numbered(10, 300))])
    result = store.append_group([run_of(*numbered(other, 300))], b"", inspected)
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert store.log_range == (0, 0)
    with pytest.raises(InvalidArgument):
        store.append_group([], b"", inspected)


def test_a_thread_that_inspects_dispatches_nothing(tmp_path: Any) -> None:
    """Queues have one owner: two threads that walk the log would enter its messages twice."""

    async def main() -> None:
        config = StoreConfig(**SMALL, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
        store = MessageStore.open(tmp_path, config)
        await store.start()
        tellers: list[threading.Thread] = []
        store.on_arrival(lambda *_: tellers.append(threading.current_thread()))
        assert store.append(Message("T", b"due")).ok

        def prove() -> None:
            store.inspect_runs([run_of(b"staged")])
            assert not store.staging.is_known("nothing")

        # The dispatch is due, and the loop has no turn before the thread is through.
        prover = threading.Thread(target=prove)
        prover.start()
        prover.join()
        assert not tellers
        assert bodies(store, "T") == [b"due"]
        assert tellers == [threading.current_thread()]
        store.close()

    asyncio.run(main())
