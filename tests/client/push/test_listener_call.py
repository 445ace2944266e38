"""Listeners run on the loop or on threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.types import (
    ConsumeContext,
)
from tests.client.push.consuming_stage import Run, Stage, play
from tests.remoting.peers import until


def test_functions_run_on_threads(run_async: Run) -> None:
    threads: set[int] = set()

    def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
        threads.add(threading.get_ident())

    async def work(stage: Stage) -> None:
        stage.give(*range(10))
        await until(lambda: stage.progress == 10)
        assert threading.get_ident() not in threads

    play(run_async, listen, work)
