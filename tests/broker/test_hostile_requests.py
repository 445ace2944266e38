"""Requests that no honest client sends: answered or refused, and never an internal error."""

from __future__ import annotations

import asyncio
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.wire.pop_handle import group_mark
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import ResponseCode
from tests.broker.running_broker import UNIQUE, Asker, broker_config, running
from tests.broker.send.test_processor import batch_item
from tests.codec.wire_frames import mutated

Run = Callable[..., Any]

NAMES = ["T", "CG", "", "..", "../../etc/passwd", "a/b", "a\0b", "%RETRY%CG", "%DLQ%", "%", "CON",
         "SCHEDULE_TOPIC_XXXX", "TBW102", "x" * 10_000, "T\u00f6pic",
         "\U0001f600", "T ", "|"]  # fmt: skip
NUMBERS = ["0", "1", "-1", "4", "99999", "2147483647", "2147483648", "-9223372036854775808",
           "9223372036854775807", "9" * 5_000, "1e9", "NaN", "", " 1", "0x10",
           "\u0661"]  # fmt: skip
FLAGS = ["true", "false", "maybe", ""]
FIELDS: dict[str, list[str]] = {
    **dict.fromkeys(
        ("topic", "consumerGroup", "group", "producerGroup", "clientID", "groupName",
         "defaultTopic", "a", "b", "c", "key", "srcGroup", "destGroup", "brokerName",
         "originTopic", "clientId", "clientAddr", "topicList", "compareGroup", "filterGroups",
         "statsKey"), NAMES),
    **dict.fromkeys(
        ("queueId", "queueOffset", "offset", "commitOffset", "maxMsgNums", "sysFlag", "timestamp",
         "suspendTimeoutMillis", "subVersion", "delayLevel", "maxReconsumeTimes", "readQueueNums",
         "writeQueueNums", "perm", "maxBytes", "maxCount", "d", "e", "f", "g", "h", "j", "l",
         "maxNum", "beginTimestamp", "endTimestamp", "topicSysFlag", "bornTimestamp", "index",
         "count", "invisibleTime", "initMode"), NUMBERS),
    **dict.fromkeys(
        ("m", "k", "order", "isForce", "setZeroIfNotFound", "unitMode", "isOrder", "offline",
         "jstackEnable", "cleanOffset"), FLAGS),
    "statsName": ["TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "BROKER_PUT_NUMS", "?", "x" * 5_000],
    "msgId": ["", UNIQUE, "0" * 32, "F" * 32, "7F00000100002A9F" + "F" * 16, "z" * 56, "0" * 56],
    "i": [f"UNIQ_KEY\x01{UNIQUE}\x02", "\x01\x02", "DELAY\x01-5\x02", "DELAY\x0199999999999\x02",
          "a\x01" + "b" * 33_000, "TRAN_MSG\x01true\x02", "REAL_TOPIC\x01../x\x02DELAY\x011\x02"],
    "subscription": ["*", "A || B", "||", "a" * 70_000, "\x00"],
    "expressionType": ["TAG", "SQL92", "X" * 100],
    "topicFilterType": ["SINGLE_TAG", "MULTI_TAG", "NONE"],
    "attributes": ["+a=b", "-a", "+" * 1000, "="],
    "boundaryType": ["LOWER", "upper", "?"],
    "pollTime": ["0", "1", "-1", "x"],
    "exp": ["*", "A || B", "||", "a > 1", "a" * 70_000],
    "expType": ["TAG", "SQL92", "X" * 100],
    "attemptId": ["a", "", "x" * 5_000],
    "extraInfo": ["0 1 60000 0 0 broker-a 0 0", "0 1 2 3 4 5 6 7", "a b c d e f g h", " " * 9,
                  "9" * 2_000, f"0 1 60000 {group_mark('CG')} 0 broker-a 0 0",
                  "-1 -1 -1 999 1 broker-a -1 -1", "0 1 2 999 0 broker-a 0 0 \x00"],
}  # fmt: skip
BODIES = [
    b"", b"x", b"{}", b"[]", b"null", b"{" * 20_000, b"[" * 200_000, b'{"a":' * 5_000,
    b"\xff" * 100,
    b'{"clientID":"c","consumerDataSet":[{"groupName":"CG","subscriptionDataSet":[{"topic":"T"}]}]}',
    b'{"clientID":5,"consumerDataSet":{"x":1},"producerDataSet":[[]]}',
    b'{"clientId":"c","consumerGroup":"CG","mqSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}',
    b'{"groupName":"../x","retryQueueNums":99999999999}', b'{"@type":"java.net.Inet4Address"}',
    b'{"a":NaN,"b":1e999,"c":' + b"9" * 5_000 + b"}", b'{"groupName":"g","groupName":"h"}',
    batch_item(b"a") + batch_item(b"b"), batch_item(b"a")[:-3],
    b"shortPollingTimeMills=9\nstorePathRootDir=/etc\n", b"traceOn=false\n" * 9_000, b"=\n\\",
    b'{"brokerName":"","acks":[{"c":"CG","t":"T","r":"0","so":0,"q":0,"rq":999,"pt":1,"b":"/w=="}]}',
    b'{"acks":[{"c":"CG","t":"T","r":1,"so":9223372036854775807,"q":0,"rq":0,"pt":1,"b":[-1]}]}',
    b"transactionTimeOut=\\u00zz\n", b"autoCreateTopicEnable=true\n#" + b"x" * 60_000,
]  # fmt: skip


def hostile_request(code: int, rng: random.Random) -> RemotingCommand:
    names = rng.sample(sorted(FIELDS), rng.randrange(len(FIELDS)))
    ext = {name: rng.choice(FIELDS[name]) for name in names}
    size = sum(map(len, ext.values()))
    while size > 30_000:
        size -= len(ext.pop(next(iter(ext))))
    if "suspendTimeoutMillis" in ext:
        ext["suspendTimeoutMillis"] = rng.choice(("0", "1"))
    body = rng.choice(BODIES)
    if body and rng.random() < 0.5:
        body = mutated(body[:2_000], rng)
    return RemotingCommand(code, ext, body, serialize_type=rng.randrange(2) if code < 32_768 else 0)


async def still_serves(asker: Asker, number: int) -> None:
    answer = await asker.send("Honest", b"%d" % number)
    assert (answer.code, answer.ext["queueOffset"]) == (0, str(number))


@pytest.mark.long
def test_no_request_of_any_code_is_an_internal_error(
    tmp_path: Path, run_async: Run, long_run: bool, summary_lines: list[str], caplog: Any
) -> None:
    rounds = 3_000 if long_run else 150
    rng = random.Random(20_261_116)
    seen: dict[int, int] = {}

    async def scenario() -> None:
        config = broker_config(
            tmp_path, topicsMax="300", groupsMax="300", messageDelayLevel="1h 2h"
        )
        async with running(config) as asker:
            await asker.make_topic("T")
            unknown = {200_049, 0, 9_999}
            codes = sorted(asker.broker.router.codes | unknown)
            for number in range(rounds):
                for code in codes:
                    command = hostile_request(code, rng)
                    answer = await asker.client.request(asker.broker.address, command, 10_000)
                    seen[answer.code] = seen.get(answer.code, 0) + 1
                    assert "internal error" not in (answer.remark or ""), (code, command.ext)
                await still_serves(asker, number)
            assert len(asker.broker.context.topics) <= 300
            assert len(asker.broker.context.groups) <= 300

    run_async(scenario(), limit_s=600)
    failures = [record for record in caplog.records if record.levelname == "ERROR"]
    assert not failures
    assert seen[ResponseCode.SUCCESS] > 100 and len(seen) > 6
    summary_lines.append(f"hostile requests: {sum(seen.values())}, answers by code {seen}")


def test_tables_stop_growing_at_their_limits(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, topicsMax="60", groupsMax="60")
        async with running(config) as asker:
            refused = 0
            for number in range(120):
                refused += (await asker.send(f"Topic{number}")).code != 0
                answer = await asker.pull("Topic0", consumerGroup=f"Group{number}")
                refused += answer.code not in (0, 19)
            assert refused > 100
            assert len(asker.broker.context.topics) == 60
            assert len(asker.broker.context.groups) == 60
        made = [path.name for path in (tmp_path / "consumequeue").iterdir()]
        assert len(made) <= 60

    run_async(scenario())


def test_records_not_yet_for_consumers_cannot_be_read(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            key = f"UNIQ_KEY\x01{UNIQUE}\x02"
            for text in ("DELAY\x015\x02", "TIMER_DELAY_SEC\x0160\x02"):
                assert (await asker.send("T", b"secret", text=text + key)).code == 0
            half = await asker.send("T", b"secret", text=f"TRAN_MSG\x01true\x02{key}", f=4)
            assert half.code == 0
            for topic in (
                "SCHEDULE_TOPIC_XXXX",
                "rmq_sys_wheel_timer",
                "RMQ_SYS_TRANS_HALF_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            ):
                for queue in range(8):
                    answer = await asker.pull(topic, queue)
                    refused = (ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST)
                    assert answer.code in refused, (topic, answer)
                    assert b"secret" not in bytes(answer.body)

    run_async(scenario())


def test_files_are_for_their_owner_only(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path / "store")) as asker:
            for number in range(20):
                await asker.send(f"T{number}", text=f"KEYS\x01k\x02UNIQ_KEY\x01{UNIQUE}\x02")
                await asker.pull(f"T{number}", sysFlag=5, commitOffset=0)

    before = os.umask(0)
    try:
        run_async(scenario())
    finally:
        os.umask(before)
    paths = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    assert len(paths) > 30
    for path in paths:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


def test_broken_frames_hurt_only_their_sender(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            host, _, port = asker.broker.address.rpartition(":")
            for number, data in enumerate(
                (b"\x7f\xff\xff\xff", b"\xff" * 8, b"\0\0\0\4\2\0\0\0", b"GET / HTTP/1.1\r\n\r\n",
                 b"\x16\x03\x01\0\xa5\1", b"\0\0\0\x10\0\xff\xff\xff", bytes(8))
            ):  # fmt: skip
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                assert await reader.read() == b""
                writer.close()
                await writer.wait_closed()
                await still_serves(asker, number)

    run_async(scenario())
