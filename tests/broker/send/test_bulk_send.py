"""The fast path of batches stores and answers exactly as the general path does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.native import codec_backend
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.codec.wire.remoting_command import BINARY_HEADER
from broker_core.protocol_codes import ResponseCode
from tests.broker.running_broker import Asker, broker_config, records, running
from tests.broker.send.test_processor import batch_item, pulled

Run = Callable[..., Any]
TEXT = "WAIT\x01true\x02"


def items(*numbers: int, size: int = 5) -> bytes:
    """Keys in half of them, and a last separator in half of those."""
    texts = [b"", b"UNIQ_KEY\x01%08X\x02KEYS\x01k", b"TAGS\x01A\x02"]
    return b"".join(
        batch_item(b"%0*d" % (size, n), texts[n % 3] % n if n % 3 == 1 else texts[n % 3])
        for n in numbers
    )


def told(answer: Any) -> dict[str, str]:
    return {
        name: value for name, value in answer.ext.items() if name not in ("msgId", "queueOffset")
    }


def appends_of_rows(asker: Asker) -> list[int]:
    """How many rows each short way stored, from now on."""
    appender = asker.broker.context.store.writes
    counts, right = [], appender.append_rows

    def counted(batch: Any) -> Any:
        result = right(batch)
        counts.append(0 if result is None else result.message_count)
        return result

    appender.append_rows = counted
    return counts


@pytest.mark.skipif(codec_backend() == "python", reason="headers are read the general way")
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_the_fast_path_stores_and_answers_as_the_general_one(
    tmp_path: Path, run_async: Run, flush: str
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, flushDiskType=flush)) as asker:
            await asker.make_topic("T")
            short = appends_of_rows(asker)
            body = items(*range(7))
            binary = await asker.send(
                code=320, body=body, m="true", text=TEXT, f=5, serialize_type=BINARY_HEADER
            )
            assert short == []
            plain = await asker.send(code=320, body=body, m="true", text=TEXT, f=5)
            assert short == [7]
            assert told(plain) == told(binary)
            assert (binary.ext["queueOffset"], plain.ext["queueOffset"]) == ("0", "7")
            found = await pulled(asker)
            assert plain.ext["msgId"].split(",") == [m.message_id for m in found[7:]]
            for one, other in zip(found[:7], found[7:], strict=True):
                assert other.queue_offset == one.queue_offset + 7
                assert (one.body, one.properties, one.sys_flag, one.flag, one.born_timestamp) == (
                    other.body, other.properties, other.sys_flag, other.flag, other.born_timestamp
                )  # fmt: skip

    run_async(scenario())


@pytest.mark.skipif(codec_backend() == "python", reason="headers are read the general way")
def test_a_batch_stays_together_at_the_end_of_a_file(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            short = appends_of_rows(asker)
            body = items(*range(60), size=3_000)
            for _ in range(12):
                answer = await asker.send(code=320, body=body, m="true", text=TEXT)
                assert answer.code == 0
                places = [decode_message_id(one)[1] for one in answer.ext["msgId"].split(",")]
                assert len({place // (1 << 20) for place in places}) == 1
            # Most went the short way, each file's last one did not.
            assert set(short) == {60}
            assert 6 <= len(short) < 12

    run_async(scenario())


def test_a_bad_item_behind_good_ones_leaves_nothing(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            assert (await asker.send(code=320, body=items(1), m="true", text=TEXT)).code == 0
            end = asker.broker.context.store.log_range
            long_text = b"a\x01" + b"b" * 32_700
            for bad in (items(2)[:-1], batch_item(b"x", long_text), b"\0\0"):
                answer = await asker.send(code=320, body=items(1, 2) + bad, m="true", text=TEXT)
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL
                assert asker.broker.context.store.log_range == end
            after = await asker.send(code=320, body=items(3), m="true", text=TEXT)
            assert after.ext["queueOffset"] == "1"
            view = await asker.ask(33, offset=decode_message_id(after.ext["msgId"])[1])
            assert records(view)[0].body == b"00003"

    run_async(scenario())


def test_what_is_not_allowed_is_refused(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, maxMessageSize="5000")) as asker:
            await asker.make_topic("T")
            batch: dict[str, Any] = {"code": 320, "m": "true", "text": TEXT}
            assert (await asker.send(body=items(1), **batch)).code == 0
            too_long = await asker.send(body=items(1, 2, 3, size=2_000), **batch)
            assert too_long.code == ResponseCode.MESSAGE_ILLEGAL
            timer = batch_item(b"x", b"TIMER_DELAY_MS\x0110\x02")
            assert (await asker.send(body=timer, **batch)).code == ResponseCode.MESSAGE_ILLEGAL
            assert (await asker.send(body=items(1), e=9, **batch)).code != 0
            await asker.make_topic("T", perm=4)
            assert (await asker.send(body=items(1), **batch)).code == ResponseCode.NO_PERMISSION

    run_async(scenario())
