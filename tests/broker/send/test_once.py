"""SEND_ONCE stores one message per id, for concurrent requests and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import Asker, broker_config, records, running

Run = Callable[..., Any]
ONCE = RequestCode.SEND_ONCE


def text(unique: str, *more: str) -> str:
    pairs = [f"UNIQ_KEY\x01{unique}", "WAIT\x01true", *more]
    return "\x02".join(pairs) + "\x02"


async def stored(asker: Asker, topic: str = "T", queues: int = 4) -> list[bytes]:
    found = []
    for queue in range(queues):
        answer = await asker.pull(topic, queue)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            answer = await asker.pull(topic, queue, int(answer.ext["minOffset"]))
        if answer.code == ResponseCode.SUCCESS:
            found += [bytes(record.body) for record in records(answer)]
    return found


def place(answer: Any) -> tuple[str, str, str]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.ext["queueId"], answer.ext["queueOffset"], answer.ext["msgId"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_one_id_is_stored_once(tmp_path: Path, run_async: Run, flush: str) -> None:
    """Requests of one moment, later ones, to another queue, and after a restart."""
    config = broker_config(tmp_path, flushDiskType=flush)

    async def first() -> Any:
        async with running(config) as asker:
            await asker.make_topic("T")
            await asker.make_topic("U")
            sends = (
                asker.send(code=ONCE, body=b"%d" % n, text=text("A"), e=n % 4) for n in range(20)
            )
            answers = await asyncio.gather(*sends)
            assert len({place(answer) for answer in answers}) == 1
            assert sorted(answer.ext["repeat"] for answer in answers) == ["false"] + ["true"] * 19
            later = await asker.send(code=ONCE, body=b"later", text=text("A"), e=3)
            assert place(later) == place(answers[0])
            assert later.ext["repeat"] == "true"
            # Other ids, and the same id in another topic, are other messages.
            for again in ("false", "true"):
                for topic, unique in (("T", "B"), ("U", "A")):
                    other = await asker.send(topic, b"other", text(unique), code=ONCE)
                    assert other.ext["repeat"] == again
            assert len(await stored(asker)) == 2
            return place(later)

    async def second(before: Any) -> None:
        async with running(config) as asker:
            again = await asker.send(code=ONCE, body=b"again", text=text("A"))
            assert (place(again), again.ext["repeat"]) == (before, "true")
            assert len(await stored(asker)) == 2

    run_async(second(run_async(first())))


def test_an_ordinary_message_with_the_id_counts(tmp_path: Path, run_async: Run) -> None:
    """What an earlier version of the client wrote, and keys that are the same text do not."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            await asker.send(body=b"plain", text=text("A"))
            await asker.send(body=b"key", text=text("Z", "KEYS\x01B"))
            answer = await asker.send(code=ONCE, text=text("A"))
            assert answer.ext["repeat"] == "true"
            answer = await asker.send(code=ONCE, body=b"new", text=text("B"))
            assert answer.ext["repeat"] == "false"
            assert sorted(await stored(asker)) == [b"key", b"new", b"plain"]

    run_async(scenario())


def test_the_answer_waits_for_the_disk(tmp_path: Path, run_async: Run) -> None:
    """Also with ASYNC_FLUSH, whose next sync is an hour away, and for a repeat."""

    async def scenario() -> None:
        hour = {"flushIntervalCommitLog": "3600000", "flushCommitLogTimed": "false"}
        hour |= {"flushCommitLogThoroughInterval": "3600000", "flushCommitLogLeastPages": "1000"}
        async with running(broker_config(tmp_path, **hour)) as asker:
            await asker.make_topic("T")
            store = asker.broker.context.store
            await asker.send(body=b"plain", text=text("Z"))
            assert store.flushed_position < store.log_range[1]
            for unique, repeat in (("A", "false"), ("A", "true"), ("Z", "true")):
                answer = await asker.send(code=ONCE, text=text(unique))
                assert answer.ext["repeat"] == repeat
                assert store.flushed_position == store.log_range[1]

    run_async(scenario())


def test_a_deleted_topic_is_forgotten(tmp_path: Path, run_async: Run) -> None:
    """Its messages are still in the log and in the index."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            for body in (b"one", b"two"):
                await asker.make_topic("T")
                await asker.send(body=b"first", text=text("Z"))
                answer = await asker.send(code=ONCE, body=body, text=text("A"))
                assert answer.ext["repeat"] == "false"
                assert sorted(await stored(asker)) == sorted([b"first", body])
                deleted = await asker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
                assert deleted.code == ResponseCode.SUCCESS

    run_async(scenario())


def test_what_it_does_not_take(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, autoCreateTopicEnable="true")) as asker:
            await asker.make_topic("T")
            missing = await asker.send("missing", text=text("A"), code=ONCE)
            assert missing.code == ResponseCode.TOPIC_NOT_EXIST
            refused = [
                await asker.send(text="TAGS\x01A\x02", code=ONCE),
                await asker.send(text=text("A", "DELAY\x013"), code=ONCE),
                await asker.send(text=text("A", "TIMER_DELAY_SEC\x013"), code=ONCE),
                await asker.send(text=text("A", "TRAN_MSG\x01true"), code=ONCE, f=4),
                await asker.send("%RETRY%CG", text=text("A"), code=ONCE),
                await asker.send(text=text("A"), code=ONCE, m="true"),
            ]
            assert {answer.code for answer in refused} == {ResponseCode.INVALID_PARAMETER}
            assert all("SEND_ONCE" in (answer.remark or "") for answer in refused)
            assert await stored(asker) == []

    run_async(scenario())


def test_a_broker_without_an_index_does_not_offer_it(tmp_path: Path, run_async: Run) -> None:
    async def offered(root: Path, enabled: str) -> tuple[str | None, int]:
        async with running(broker_config(root, messageIndexEnable=enabled)) as asker:
            await asker.make_topic("T")
            capabilities = await asker.ask(RequestCode.CAPABILITIES)
            answer = await asker.send(code=ONCE, text=text("A"))
            return capabilities.ext.get("sendOnce"), answer.code

    assert run_async(offered(tmp_path / "with", "true")) == ("1", ResponseCode.SUCCESS)
    without = run_async(offered(tmp_path / "without", "false"))
    assert without == (None, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


def test_a_store_that_cannot_be_written_answers_as_for_a_send(
    tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            body = b"x" * (5 << 20)
            plain = await asker.send(body=body, text=text("A"))
            once = await asker.send(code=ONCE, body=body, text=text("A"))
            assert once.code == plain.code != ResponseCode.SUCCESS
            # It was not stored, so it is not known.
            again = await asker.send(code=ONCE, body=b"small", text=text("A"))
            assert again.ext["repeat"] == "false"

    run_async(scenario())
