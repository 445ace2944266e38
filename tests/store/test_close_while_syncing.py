"""Closing while syncs are under way and producers wait releases everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import Message, MessageStore, StoreConfig, errors
from broker_core.protocol_codes import PutStatus

CONFIG = StoreConfig(sync_flush_timeout_ms=120_000, page_cache_busy_timeout_ms=120_000)


def _message(number: int) -> Message:
    return Message("T", b"%d" % number, queue_id=0)


def _bodies(directory: Path) -> list[bytes]:
    with MessageStore.open(directory, CONFIG) as store:
        return [bytes(message.body) for message in store.get("T", 0, offset=0).messages()]


async def _begun(store: MessageStore) -> None:
    """Two turns of the loop: what was appended is on its way to the disk."""
    for _ in range(2):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_begun", [True, False], ids=["under way", "not begun"])
def test_ids_are_given_to_waiters(
    is_begun: bool, tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    told: list[tuple[PutStatus, str]] = []

    async def scenario() -> None:
        store = MessageStore.open(tmp_path / "store", CONFIG)
        await store.start()
        result = store.append(_message(0))
        store.when_acknowledged(
            result, lambda status: told.append((status, store.message_ids(result)))
        )
        if is_begun:
            await _begun(store)
        store.close()
        with pytest.raises(errors.StoreClosed):
            store.message_ids(result)

    run_async(scenario())
    [(status, ids)] = told
    assert (status, len(ids)) == (PutStatus.PUT_OK, 32)
    assert _bodies(tmp_path / "store") == [b"0"]


@pytest.mark.parametrize("is_begun", [True, False], ids=["under way", "not begun"])
def test_a_waiter_that_raises_keeps_nothing_open(
    is_begun: bool, tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        store = MessageStore.open(tmp_path / "store", CONFIG)
        await store.start()

        def fail(_: object) -> None:
            raise ZeroDivisionError

        store.when_durable(store.append(_message(0)), fail)
        if is_begun:
            await _begun(store)
        with pytest.raises(ZeroDivisionError):
            store.close()

    run_async(scenario())
    # The lock is free, and what was appended is there.
    assert _bodies(tmp_path / "store") == [b"0"]


def test_a_waiter_that_raises_hides_nothing(tmp_path: Path, run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        errors_seen: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _loop, context: errors_seen.append(context))
        store = MessageStore.open(tmp_path / "store", CONFIG)
        await store.start()
        try:

            def fail(_: object) -> None:
                raise ZeroDivisionError

            store.when_durable(store.append(_message(0)), fail)
            assert (await store.put(_message(1))).ok
            # The sync that served both has been dispatched, though nothing follows it.
            for _ in range(3):
                await asyncio.sleep(0)
            assert store._opened.dispatcher.position == store.log_range[1]
        finally:
            store.close()
        assert any(isinstance(found.get("exception"), ZeroDivisionError) for found in errors_seen)

    run_async(scenario())


def test_a_store_outlives_its_loop(tmp_path: Path) -> None:
    """A script whose loop has ended closes the store after it; a sync was under way then."""
    loop = asyncio.new_event_loop()
    store = MessageStore.open(tmp_path / "store", CONFIG)

    async def begin() -> None:
        await store.start()
        store.append(_message(0))
        await _begun(store)
        # Behind the sync that is under way: the report of that one begins the next.
        store.append(_message(1))

    loop.run_until_complete(begin())
    loop.close()
    store.close()
    assert _bodies(tmp_path / "store") == [b"0", b"1"]
