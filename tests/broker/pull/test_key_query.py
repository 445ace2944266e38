"""Messages by key over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.protocol_codes import ResponseCode
from tests.broker.running_broker import broker_config, records, running, until


def test_by_key_by_unique_key_and_by_time(tmp_path: Path, run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            for number in range(6):
                text = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01order-{number % 2} all\x02"
                await asker.send(body=b"%d" % number, text=text)
            store = asker.broker.context.store
            await until(lambda: store.dispatched_position == store.log_range[1])
            times = {"beginTimestamp": 0, "endTimestamp": 2**62}
            ask: dict[str, Any] = {"topic": "T", "maxNum": 32, **times}
            found = await asker.ask(12, key="order-1", **ask)
            assert [m.body for m in records(found)] == [b"1", b"3", b"5"]
            assert int(found.ext["indexLastUpdatePhyoffset"]) == store.log_range[1]
            few = await asker.ask(12, key="all", **{**ask, "maxNum": 2})
            assert len(records(few)) == 2
            unique = await asker.ask(12, key=f"{4:032X}", _UNIQUE_KEY_QUERY="true", **ask)
            assert [m.body for m in records(unique)] == [b"4"]
            for fields in (
                {"key": "nobody"},
                {"key": "all", "topic": "Other"},
                {"key": "all", "endTimestamp": 1},
            ):
                answer = await asker.ask(12, **{**ask, **fields})
                assert answer.code == ResponseCode.QUERY_NOT_FOUND
            bad = await asker.ask(12, key="all", **{**ask, "maxNum": 0})
            assert bad.code == ResponseCode.INVALID_PARAMETER

    run_async(scenario())
