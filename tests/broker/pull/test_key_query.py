"""Messages by key over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.native import java_hash
from broker_core.protocol_codes import ResponseCode
from broker_core.store.reads import message_reader
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


def test_keys_of_one_hash_do_not_keep_the_broker_busy(
    tmp_path: Path, run_async: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query read every record whose key has the same hash, and senders choose their keys."""
    monkeypatch.setattr(message_reader, "QUERY_CANDIDATES_MAX", 40)
    *keys, absent, early = ("".join(pairs) for pairs in product(("Aa", "BB"), repeat=6))
    assert len({java_hash(f"T#{key}".encode()) for key in (*keys, absent, early)}) == 1

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            for number, key in enumerate((early, *keys)):
                await asker.send(text=f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01{key}\x02")
            store = asker.broker.context.store
            await until(lambda: store.dispatched_position == store.log_range[1])
            read: list[int] = []
            record_at = store.reads._at
            monkeypatch.setattr(store.reads, "_at", lambda at: read.append(at) or record_at(at))
            ask: dict[str, Any] = {"topic": "T", "beginTimestamp": 0, "endTimestamp": 2**62}
            for key in (absent, early):
                answer = await asker.ask(12, key=key, maxNum=8, **ask)
                assert answer.code == ResponseCode.QUERY_NOT_FOUND
                assert answer.ext["isComplete"] == "false"
            assert len(read) == 2 * 40
            found = await asker.ask(12, key=keys[-1], maxNum=8, **ask)
            assert len(records(found)) == 1
            assert found.ext["isComplete"] == "false"
            # The broker itself looks at all of them.
            assert [record.queue_offset for record in store.query("T", early)] == [0]
            monkeypatch.setattr(message_reader, "QUERY_CANDIDATES_MAX", 8_192)
            found = await asker.ask(12, key=early, maxNum=8, **ask)
            assert len(records(found)) == 1
            assert found.ext["isComplete"] == "true"
            monkeypatch.setattr(message_reader, "_QUERY_STEPS_MAX", 10)
            answer = await asker.ask(12, key=early, maxNum=8, **ask)
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            assert answer.ext["isComplete"] == "false"

    run_async(scenario())
