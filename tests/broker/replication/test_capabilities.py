"""CAPABILITIES: our requests, and the identity of the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.protocol_codes import RequestCode
from tests.broker.running_broker import broker_config, running

Run = Callable[..., Any]


def test_capabilities(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            answer = await asker.ask(RequestCode.CAPABILITIES)
            store = asker.broker.context.store
            assert (answer.code, answer.ext["bulkPull"], answer.ext["bulkSend"]) == (0, "1", "1")
            assert (answer.ext["storeId"], answer.ext["epoch"]) == (
                store.store_id,
                str(store.epoch),
            )

    run_async(scenario())
