"""R11 (RocketMQ #4215, #2181): a consumer one past the end was sent back to 0 and read all again.

It happened where the smallest offset of the queue was 0, most often to consumers that had moved to
a slave which was behind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.protocol_codes import GetStatus
from broker_core.store.reads import message_reader
from tests.broker.running_broker import Asker, broker_config, running

Run = Callable[..., Any]
COUNT = 40
BULK_PULL = 29901
LITE_PULL = 361


async def _scenario(asker: Asker) -> None:
    for number in range(COUNT):
        assert (await asker.send("T", b"%d" % number)).code == 0
    for beyond in (1, 2, 1_000, 2**40):
        asked = COUNT + beyond
        for code in (11, LITE_PULL):
            answer = await asker.pull(offset=asked, code=code)
            assert int(answer.ext["nextBeginOffset"]) == COUNT, "sent back to the start"
            assert int(answer.ext["maxOffset"]) == COUNT
        bulk = await asker.ask(
            BULK_PULL, topic="T", queueId=0, offset=asked, maxBytes=1 << 20, maxCount=1_000
        )
        assert int(bulk.ext["nextBeginOffset"]) == COUNT, "sent back to the start"
    # The end itself is no mistake: the next message is waited for there.
    assert int((await asker.pull(offset=COUNT)).ext["nextBeginOffset"]) == COUNT
    # Nothing was noted for the group on the way.
    answer = await asker.ask(14, consumerGroup="CG", topic="T", queueId=0)
    assert answer.code != 0 or int(answer.ext["offset"]) == 0


def test_no_reader_is_sent_back_to_the_start(tmp_path: Path, run_async: Run) -> None:
    async def run() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await _scenario(asker)

    run_async(run())


def test_the_scenario_finds_a_broker_that_starts_again(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = message_reader._corrected

    def as_it_was(offset: int, low: int, high: int) -> tuple[GetStatus, int] | None:
        if offset > high > 0:
            return GetStatus.OFFSET_OVERFLOW_BADLY, low if low == 0 else high
        return right(offset, low, high)

    monkeypatch.setattr(message_reader, "_corrected", as_it_was)

    async def run() -> None:
        async with running(broker_config(tmp_path)) as asker:
            with pytest.raises(AssertionError, match="back to the start"):
                await _scenario(asker)

    run_async(run())
