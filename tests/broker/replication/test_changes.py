"""Changes of role: one at a time, retried when the start fails, abandoned on stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.broker.replication import changes as role_changes
from broker_core.broker.replication.changes import RoleChanges
from broker_core.errors import InvalidArgument, ServiceNotAvailable
from tests.replication.running_pair import TIMEOUT_S, on_loop


class _Starts:
    """A broker that cannot start, until it `can`."""

    def __init__(self) -> None:
        self.can = False
        self.count = 0

    async def start(self) -> None:
        self.count += 1
        if not self.can:
            raise OSError("the port is taken")

    async def change(self) -> None:
        await self.start()


@pytest.fixture(autouse=True)
def rare_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the next try is longer than a test may last."""
    monkeypatch.setattr(role_changes, "_RETRY_S", 1e6)


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@on_loop
async def test_stop_gives_up_a_start_that_fails() -> None:
    starts = _Starts()
    changes = RoleChanges(starts.start)
    assert changes.soon(starts.change)
    await _turns()
    assert starts.count == 2
    await asyncio.wait_for(changes.stop(), TIMEOUT_S)
    assert starts.count == 2
    # It is over until the broker is started again.
    assert not changes.soon(starts.change)
    with pytest.raises(ServiceNotAvailable):
        await changes.now(starts.change)
    changes.open()
    starts.can = True
    assert changes.soon(starts.change)
    await changes.stop()
    assert starts.count == 3


@on_loop
async def test_a_failed_change_is_reported_and_the_start_is_retried() -> None:
    starts = _Starts()

    async def change() -> None:
        starts.can = True
        raise OSError("no room")

    changes = RoleChanges(starts.start)
    with pytest.raises(OSError, match="no room"):
        await changes.now(change)
    await _turns()
    assert starts.count == 1
    await changes.stop()


@on_loop
async def test_one_change_at_a_time() -> None:
    starts, go = _Starts(), asyncio.Event()
    starts.can = True

    async def slow() -> None:
        await go.wait()

    def refused() -> Any:
        raise InvalidArgument("no")

    changes = RoleChanges(starts.start)
    with pytest.raises(InvalidArgument):
        changes.soon(refused)
    for begin in (changes.soon, _in_task(changes)):
        go.clear()
        begin(slow)
        await _turns()
        assert not changes.soon(starts.change)
        later = asyncio.ensure_future(changes.now(starts.change))
        await _turns()
        assert not later.done()
        go.set()
        await later
    assert starts.count == 2
    await changes.stop()


def _in_task(changes: RoleChanges) -> Callable[[Callable[[], Any]], object]:
    return lambda change: asyncio.ensure_future(changes.now(change))
