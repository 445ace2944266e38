"""Requests that the broker relays to a client, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.codec.records.message_record import decode_record
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue, parse_queue_map, queue_map
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import Asker, broker_config, running, until
from tests.patient_client import patient_client

Run = Callable[..., Any]
INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECT = RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


class Member:
    """A consumer of group `g` whose answers a test sets."""

    def __init__(self, asker: Asker, name: str = "member") -> None:
        self._asker = asker
        self.name = name
        self.asked: list[RemotingCommand] = []
        self.answers: Callable[[RemotingCommand], Any] = lambda command: command.reply()
        self.connection: Any = None
        self.client = patient_client(request_handler=self._answer)

    def _answer(self, connection: Any, command: RemotingCommand) -> Any:
        self.connection = connection
        self.asked.append(command)
        return self.answers(command)

    async def join(self) -> None:
        consumer = ConsumerData("g", subscriptions=(parse_tag_expression("T", "*"),))
        body = encode_heartbeat(HeartbeatData(self.name, consumers=(consumer,)))
        command = RemotingCommand(RequestCode.HEART_BEAT, {}, body)
        answer = await self.client.request(self._asker.broker.address, command, 5_000)
        assert answer.code == 0


def with_member(tmp_path: Path, run_async: Run, scenario: Callable[[Asker, Member], Any]) -> None:
    async def run() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            member = Member(asker)
            try:
                await member.join()
                await scenario(asker, member)
            finally:
                await member.client.close()

    run_async(run())


def test_running_info_is_passed_on_word_for_word(tmp_path: Path, run_async: Run) -> None:
    async def scenario(asker: Asker, member: Member) -> None:
        said = b'{"jstack":"...","mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{}}}'
        member.answers = lambda command: command.reply(ext={"k": "v"}, body=said)
        answer = await asker.ask(INFO, consumerGroup="g", clientId="member", jstackEnable="true")
        assert (answer.code, answer.body, answer.ext["k"]) == (0, said, "v")
        [asked] = [command for command in member.asked if command.code == INFO]
        assert asked.ext == {"consumerGroup": "g", "clientId": "member", "jstackEnable": "true"}

    with_member(tmp_path, run_async, scenario)


def test_refusals_of_the_client_are_passed_on(tmp_path: Path, run_async: Run) -> None:
    async def scenario(asker: Asker, member: Member) -> None:
        member.answers = lambda command: command.reply(ResponseCode.SYSTEM_ERROR, "not here")
        answer = await asker.ask(INFO, consumerGroup="g", clientId="member")
        assert (answer.code, answer.remark) == (1, "not here")
        for group, client in (("g", "other"), ("other", "member")):
            answer = await asker.ask(INFO, consumerGroup=group, clientId=client)
            assert answer.code == 1 and "not online" in (answer.remark or "")
        answer = await asker.ask(INFO, consumerGroup="g")
        assert answer.code == ResponseCode.INVALID_PARAMETER

    with_member(tmp_path, run_async, scenario)


def test_the_asker_and_others_are_served_meanwhile(tmp_path: Path, run_async: Run) -> None:
    async def scenario(asker: Asker, member: Member) -> None:
        release: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def later(command: RemotingCommand) -> RemotingCommand:
            await release
            return command.reply(body=b"{}")

        member.answers = later
        waiting = asyncio.ensure_future(asker.ask(INFO, consumerGroup="g", clientId="member"))
        assert (await asker.send("T")).code == 0
        assert not waiting.done()
        release.set_result(None)
        assert (await waiting).body == b"{}"

    with_member(tmp_path, run_async, scenario)


def test_a_client_that_goes_is_an_error(tmp_path: Path, run_async: Run) -> None:
    async def scenario(asker: Asker, member: Member) -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def silent(command: RemotingCommand) -> RemotingCommand:
            await never
            return command.reply()

        member.answers = silent
        waiting = asyncio.ensure_future(asker.ask(INFO, consumerGroup="g", clientId="member"))
        await until(lambda: any(command.code == INFO for command in member.asked))
        member.connection.abort("gone")
        answer = await waiting
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "member" in (answer.remark or "")
        never.cancel()

    with_member(tmp_path, run_async, scenario)


def test_a_message_is_handed_to_one_consumer(tmp_path: Path, run_async: Run) -> None:
    async def scenario(asker: Asker, member: Member) -> None:
        sent = await asker.send("T", b"direct")
        result = {"autoCommit": True, "consumeResult": "CR_SUCCESS", "spentTimeMills": 1}
        member.answers = lambda command: command.reply(body=emit_json(result))
        answer = await asker.ask(
            DIRECT, consumerGroup="g", clientId="member", msgId=sent.ext["msgId"], topic="T"
        )
        assert parse_json(answer.body) == result
        [asked] = [command for command in member.asked if command.code == DIRECT]
        assert asked.ext["brokerName"] == "broker-a"
        record = decode_record(bytes(asked.body))
        assert (record.body, record.topic) == (b"direct", "T")
        for bad in ("x", "0" * 31, "F" * 32):
            answer = await asker.ask(DIRECT, consumerGroup="g", clientId="member", msgId=bad)
            assert answer.code == ResponseCode.INVALID_PARAMETER
        gone = sent.ext["msgId"][:-16] + "0000000000FFFFFF"
        answer = await asker.ask(DIRECT, consumerGroup="g", clientId="member", msgId=gone)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "no message" in (answer.remark or "")

    with_member(tmp_path, run_async, scenario)


def test_positions_of_members(tmp_path: Path, run_async: Run) -> None:
    async def scenario(asker: Asker, member: Member) -> None:
        queue = MessageQueue("T", "broker-a", 0)
        table = {"consumerTable": {}, "messageQueueTable": queue_map({queue: 5})}
        member.answers = lambda command: command.reply(body=emit_json(table))
        answer = await asker.ask(STATUS, topic="T", group="g")
        found = parse_json(answer.body)
        assert parse_queue_map(found["consumerTable"]["member"]) == {queue: 5}
        assert found["messageQueueTable"] == {}
        assert [command.code for command in member.asked if command.code != 40] == [221]
        answer = await asker.ask(STATUS, topic="T", group="g", clientAddr="nobody")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        member.answers = lambda command: command.reply(body=b"{broken")
        answer = await asker.ask(STATUS, topic="T", group="g")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "malformed answer" in (answer.remark or "")

    with_member(tmp_path, run_async, scenario)
