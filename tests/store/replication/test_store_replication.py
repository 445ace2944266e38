"""A store that waits for slaves: what readers see, and the status of puts and groups."""

from __future__ import annotations

import pytest

from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.store.replication.replica_gate import Gate
from tests.store.small_store import bodies, new_disk, numbered, open_small, run_of


def opened(flush: FlushDiskType) -> tuple[MessageStore, Gate]:
    store = open_small(new_disk(), flush_disk_type=flush)
    gate = Gate(store)
    store.replication.require_replicas(gate, 3_000)
    return store, gate


@pytest.mark.parametrize("flush", FlushDiskType)
def test_readers_see_whole_records_that_slaves_have(flush: FlushDiskType) -> None:
    store, gate = opened(flush)
    statuses: list[PutStatus] = []
    ends = []
    for body in numbered(5, size=200):
        result = store.append(Message("T", body))
        store.when_acknowledged(result, statuses.append)
        ends.append(result.end_position)
    store.flush()
    assert store.offsets("T", 0) == (0, 0)
    # Every position in between, as slaves report it.
    for position in range(0, ends[-1] + 1, 7):
        gate.reach(position)
        assert store.offsets("T", 0)[1] == sum(end <= position for end in ends)
        assert len(statuses) == store.offsets("T", 0)[1]
    gate.reach(ends[-1])
    assert len(bodies(store, "T")) == 5
    assert statuses == [PutStatus.PUT_OK] * 5
    store.close()


def test_a_group_is_shown_as_a_whole() -> None:
    store, gate = opened(FlushDiskType.SYNC_FLUSH)
    result = store.append_group([run_of(*numbered(20, size=300))])
    assert result.ok
    store.flush()
    done: list[BaseException | None] = []
    store.when_durable(result, done.append)
    for position in range(result.position, result.end_position, 97):
        gate.reach(position)
        assert store.offsets("T", 0) == (0, 0)
        assert not done
    gate.reach(result.end_position)
    assert store.offsets("T", 0) == (0, 20)
    assert done == [None]
    store.close()
