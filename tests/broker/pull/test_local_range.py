"""LOCAL_RANGE: where a reader on the same host finds a queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.codec.wire.bodies.local_range import (
    parse_local_range,
)
from broker_core.protocol_codes import RequestCode
from tests.broker.running_broker import broker_config, running
from tests.broker.send.test_processor import batch_item

Run = Callable[..., Any]


ENDS, RANGE = RequestCode.TOPIC_ENDS, RequestCode.LOCAL_RANGE


async def send(asker: Any, queue_id: int, count: int) -> None:
    body = b"".join(batch_item(b"%d" % n, b"") for n in range(count))
    answer = await asker.ask(
        RequestCode.BULK_SEND, body, topic="T", queueId=queue_id, producerGroup="P"
    )
    assert answer.code == 0, answer.remark


def test_a_range_and_its_files(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path)
        async with running(config) as asker:
            await asker.make_topic("T")
            await send(asker, 1, 7)
            answer = await asker.ask(RANGE, topic="T", queueId=1)
            found = parse_local_range(answer.ext)
            store = asker.broker.context.store
            assert (found.min_offset, found.max_offset) == (0, 7)
            layout = found.layout
            assert (layout.store_id, layout.epoch) == (store.store_id, store.epoch)
            assert Path(layout.directory) == Path(config.store_root)
            [units] = (Path(layout.directory) / "consumequeue" / "T" / "1").iterdir()
            # In the file although the queue was not flushed.
            assert len(units.read_bytes()[: 7 * 20].strip(b"\0")) > 6 * 20
            assert (await asker.ask(RequestCode.CAPABILITIES)).ext["localReads"] == "1"

    run_async(scenario())
