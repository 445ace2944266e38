"""Running flags refuse puts."""

from __future__ import annotations

from broker_core.protocol_codes import FlushDiskType, PutStatus
from broker_core.store.message_store import MessageStore
from broker_core.store.running_flags import Running
from broker_core.store.writes.message import Message
from tests.store.replication.replica_gate import Gate
from tests.store.small_store import new_disk, open_small


def opened(flush: FlushDiskType) -> tuple[MessageStore, Gate]:
    store = open_small(new_disk(), flush_disk_type=flush)
    gate = Gate(store)
    store.replication.require_replicas(gate, 3_000)
    return store, gate


def test_without_slaves() -> None:
    store, gate = opened(FlushDiskType.ASYNC_FLUSH)
    gate.is_available = False
    statuses: list[PutStatus] = []
    store.when_acknowledged(store.append(Message("T", b"x")), statuses.append)
    assert statuses == [PutStatus.SLAVE_NOT_AVAILABLE]
    store.replication.set_running(Running.REPLICAS_MISSING, True)
    end = store.log_range
    assert store.append(Message("T", b"x")).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    assert store.log_range == end
    store.replication.set_running(Running.REPLICAS_MISSING, False)
    store.replication.set_running(Running.STEPPED_DOWN, True)
    assert store.append(Message("T", b"x")).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()
