"""Hooks before and after a send."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.broker.send.hooks import SendContext, SendOutcome
from broker_core.errors import NoPermission
from broker_core.protocol_codes import PutStatus, ResponseCode
from tests.broker.running_broker import broker_config, running

Run = Callable[..., Any]


def test_hooks_see_and_refuse(tmp_path: Path, run_async: Run) -> None:
    seen: list[tuple[SendContext, SendOutcome]] = []

    def refuse(context: SendContext) -> None:
        if context.topic == "Secret":
            raise NoPermission(ResponseCode.NO_PERMISSION, "not for you")

    def note(context: SendContext, outcome: SendOutcome) -> None:
        seen.append((context, outcome))
        raise ZeroDivisionError

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            asker.broker.features.send.hooks.add(before=refuse, after=note)
            assert (await asker.send("Secret")).code == ResponseCode.NO_PERMISSION
            answer = await asker.send(e=1)
            assert answer.code == 0
            ((context, outcome),) = seen
            assert (context.topic, context.queue_id, context.body_size) == ("T", 1, 4)
            assert (outcome.status, outcome.message_ids) == (PutStatus.PUT_OK, answer.ext["msgId"])

    run_async(scenario())
