"""Retries of services that run on timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker_core.broker import timed_service
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.files.file_system import DiskUsage
from broker_core.store.writes.message import Message
from tests.broker.delay_store import DelayStore

ASYNC = {"flush_disk_type": FlushDiskType.ASYNC_FLUSH}


@pytest.fixture(params=[{}, ASYNC], ids=["sync", "async"])
def broker(request: pytest.FixtureRequest) -> Iterator[DelayStore]:
    made = DelayStore(**request.param).start()
    yield made
    made.stop()


def _refuse(broker: DelayStore) -> Callable[[], None]:
    """Let the store take no puts; returns what ends that."""
    broker.disk.reported_usage = DiskUsage(95, 5)
    broker.store.clean()
    assert not broker.store.append(Message("T", b"refused")).ok

    def end() -> None:
        broker.disk.reported_usage = None
        broker.store.clean()

    return end


def test_back_off_starts_short(broker: DelayStore) -> None:
    broker.delay(b"x", 1)
    end = _refuse(broker)
    broker.advance(1_050)
    end()
    broker.advance(timed_service.BACK_OFF_MIN_MS)
    assert broker.bodies() == [b"x"]
