"""Counts how often a broker parses each of many plain sends; run with `RMQ_CODEC` set.

Writes the counts as JSON: headers read by the general decoder, by the reader of single plain sends,
and frames offered to the reader of bursts.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.broker.send import bursts
from broker_core.codec.native import codec_backend
from broker_core.codec.wire import plain_send
from tests.broker.running_broker import broker_config, running
from tests.broker.send.test_bursts import exchange, joined, send

SENDS = 40


def count_calls(module: Any, name: str, counts: Counter[str]) -> None:
    """Replace a function of a module by one that counts, too."""
    function: Callable[..., Any] = getattr(module, name)

    def counting(*args: Any) -> Any:
        counts[name] += 1
        return function(*args)

    setattr(module, name, counting)


async def counted(root: Path) -> Counter[str]:
    """Sends that arrive together at a broker whose topic has taken messages before."""
    counts: Counter[str] = Counter()
    for module, name in (
        (plain_send, "decode_header"),
        (plain_send, "read_plain_send"),
        (bursts, "read_sends"),
    ):
        count_calls(module, name, counts)
    async with running(broker_config(root)) as asker:
        await asker.make_topic("T")
        await asker.send()
        counts.clear()
        replies = await exchange(asker, joined(*map(send, range(1, SENDS + 1))), SENDS)
        assert all(reply.code == 0 for reply in replies.values())
    return counts


if __name__ == "__main__":
    found = asyncio.run(counted(Path(sys.argv[1])))
    sys.stdout.write(json.dumps({"backend": codec_backend(), **found}))
