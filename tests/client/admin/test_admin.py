"""Administration when answers are late, missing or made up; the good cases run on real brokers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.client.admin.admin import Admin
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.message_id import encode_message_id
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    GroupNotExist,
    InvalidArgument,
    QueryNotFound,
    RequestTimeout,
    TopicNotExist,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.client import parse_address
from tests.client.scripted_brokers import ScriptedCluster, scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 1)


@contextlib.asynccontextmanager
async def administered(*names: str) -> AsyncIterator[tuple[ScriptedCluster, Admin]]:
    async with scripted_cluster(*names) as cluster, Admin(cluster.config()) as admin:
        yield cluster, admin


def answer_with(code: int = 0, body: bytes = b"", **ext: str) -> Callable[..., RemotingCommand]:
    return lambda command: command.reply(code, f"code {code}", ext, body)


@pytest.mark.parametrize("ext", [{}, {"offset": ""}, {"offset": "x"}, {"offset": "9" * 30}])
def test_offsets_that_are_none(run_async: Callable[..., Any], ext: dict[str, str]) -> None:
    async def scenario() -> None:
        async with administered() as (cluster, admin):
            cluster.broker.answers[RequestCode.GET_MAX_OFFSET] = answer_with(**ext)
            with pytest.raises(UnexpectedAnswer, match="broker-a"):
                await admin.max_offset(QUEUE)

    run_async(scenario())


def test_codes_become_errors_that_name_the_queue(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with administered() as (cluster, admin):
            answers = cluster.broker.answers
            answers[RequestCode.GET_MIN_OFFSET] = answer_with(17)
            with pytest.raises(TopicNotExist, match="queue 1 of topic T at broker-a: code 17"):
                await admin.min_offset(QUEUE)
            answers[RequestCode.GET_MIN_OFFSET] = answer_with(offset="-1")
            assert await admin.min_offset(QUEUE) == 0
            answers[RequestCode.QUERY_CONSUMER_OFFSET] = answer_with(22)
            assert await admin.committed_offset("CG", QUEUE) is None
            answers[RequestCode.QUERY_CONSUMER_OFFSET] = answer_with(26)
            with pytest.raises(GroupNotExist):
                await admin.committed_offset("CG", QUEUE)
            with pytest.raises(TopicNotExist):
                await admin.max_offset(QUEUE._replace(topic="Unknown"))

    run_async(scenario())


def test_a_topic_that_never_shows(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with administered() as (cluster, admin):
            answers = cluster.broker.answers
            answers[RequestCode.UPDATE_AND_CREATE_TOPIC] = answer_with()
            with pytest.raises(RequestTimeout, match="New was created"):
                await admin.create_topic("New", shown_within_ms=120)
            for name, options in (
                ("bad name", {}),
                ("New", {"queue_count": -1}),
                ("New", {"queue_count": 1 << 20}),
                ("New", {"perm": 99}),
            ):
                with pytest.raises(InvalidArgument):
                    await admin.create_topic(name, **options)

    run_async(scenario())


def test_ids_lead_only_to_brokers_of_the_cluster(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with administered() as (cluster, admin):
            asked: list[RemotingCommand] = []
            host = parse_address(cluster.broker.address)
            record = MessageRecord("T", 1, b"x", physical_offset=64, store_host=host)

            def view(command: RemotingCommand) -> RemotingCommand:
                asked.append(command)
                return command.reply(0, body=encode_record(record))

            cluster.broker.answers[RequestCode.VIEW_MESSAGE_BY_ID] = view
            found = await admin.view_message(encode_message_id(host, 64), "T")
            assert found.body == b"x"
            assert asked[0].ext == {"offset": "64", "topic": "T"}
            with pytest.raises(BrokerNotExist, match=r"192\.0\.2\.9:22"):
                await admin.view_message(encode_message_id(("192.0.2.9", 22), 64))
            with pytest.raises(BrokerNotExist, match="::1"):
                await admin.view_message(encode_message_id(("::1", 22), 64))
            with pytest.raises(InvalidArgument, match="hex digits"):
                await admin.view_message("not an id")
            assert len(asked) == 1

    run_async(scenario())


def test_messages_that_cannot_be_read(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with administered() as (cluster, admin):
            host = parse_address(cluster.broker.address)
            good = encode_record(MessageRecord("T", 1, b"x", store_host=host))
            answers = cluster.broker.answers
            flipped = bytearray(good)
            flipped[90] ^= 1
            for body in (b"", b"\x00" * 3, b"\xff" * 200, good[:-1], good + good, bytes(flipped)):
                answers[RequestCode.VIEW_MESSAGE_BY_ID] = answer_with(0, body)
                with pytest.raises(UnexpectedAnswer):
                    await admin.view_message(encode_message_id(host, 0))
            answers[RequestCode.VIEW_MESSAGE_BY_ID] = answer_with(1)
            with pytest.raises(QueryNotFound):
                await admin.view_message(encode_message_id(host, 0))
            # A broker may not slip in messages of other topics.
            other = encode_record(MessageRecord("Other", 1, b"y", store_host=host))
            answers[RequestCode.QUERY_MESSAGE] = answer_with(0, good + other + good)
            found = await admin.query_messages("T", "k", max_count=1)
            assert [one.topic for one in found] == ["T"]
            answers[RequestCode.QUERY_MESSAGE] = answer_with(22)
            assert await admin.query_messages("T", "k") == []
            with pytest.raises(InvalidArgument, match="key"):
                await admin.query_messages("T", "")

    run_async(scenario())


def test_deleting_continues_and_reports_what_failed(run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with scripted_cluster() as cluster:
            config = cluster.config()
            dead = "127.0.0.1:1"
            object.__setattr__(config, "name_servers", (dead, cluster.name_server))
            async with Admin(config) as admin:
                cluster.broker.answers[RequestCode.DELETE_TOPIC_IN_BROKER] = answer_with()
                with pytest.raises(ConnectionLost, match=dead):
                    await admin.delete_topic("T")
                assert cluster.server.table.route("T") is None

    run_async(scenario())
