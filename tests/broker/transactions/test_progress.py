"""Progress of transactions over a restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_core.broker.transactions import progress as transaction_progress
from broker_core.protocol_codes import FlushDiskType
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.broker.half_store import HalfStore

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}


@pytest.fixture(params=[{}, ASYNC], ids=["sync", "async"])
def broker(request: pytest.FixtureRequest) -> Iterator[HalfStore]:
    made = HalfStore(**request.param).start()
    yield made
    made.stop()


def test_the_walk_begins_at_the_position_of_the_progress_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_progress, "GROWTH_MAX", 4_000)
    broker = HalfStore().start()
    broker.send(b"pinned")
    for _ in range(20):
        broker.store.append(Message("other", bytes(500)))
    broker.store.flush()
    broker.advance(2_000)
    stored = broker.table.load()
    assert stored is not None and stored["logPosition"] == broker.store.log_range[1]
    starts: list[int] = []
    walk = MessageStore.prepared_offsets

    def watched(store: MessageStore, start: int) -> Iterator[tuple[int, int]]:
        starts.append(start)
        return walk(store, start)

    monkeypatch.setattr(MessageStore, "prepared_offsets", watched)
    after = broker.killed()
    assert starts == [stored["logPosition"]]
    assert after.open_offsets() == [0]
    after.stop()
