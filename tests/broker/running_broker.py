"""A whole broker on real sockets and a real disk, and a client that asks it anything."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import SELF_TEST_TOPIC
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import GetStatus
from broker_core.remoting.client import RemotingClient
from broker_core.store.reads.message_reader import GetResult
from tests.patient_client import patient_client
from tests.remoting.peers import until

__all__ = ["Asker", "broker_config", "records", "running", "until", "until_registered"]

# For requests that are answered: a machine that pauses for a while must not make them fail.
TIMEOUT_MS = 120_000
UNIQUE = "7F00000100002A9F0000000000000001"
SMALL = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "1000",
    # A disk that is busy with other things may take longer than the default of 5 s for a sync, and
    # a machine that pauses in the middle of a put is not one that has no memory left.
    "syncFlushTimeout": "120000",
    "osPageCacheBusyTimeOutMills": "120000",
}


def broker_config(root: Path, **properties: str) -> BrokerConfig:
    """A small broker on a port of the system's choice, without the VIP port beside it."""
    given = {
        "storePathRootDir": str(root),
        "listenPort": "0",
        "vipPortEnable": "false",
        **SMALL,
        **properties,
    }
    config, unknown = BrokerConfig.from_properties(given)
    assert not unknown
    return config


class Asker:
    """One client connection to a running broker."""

    def __init__(self, broker: Broker, client: RemotingClient) -> None:
        self.broker = broker
        self.client = client

    async def ask(
        self, code: int, body: bytes = b"", *, serialize_type: int = 0, version: int = 409,
        **ext: Any,
    ) -> RemotingCommand:  # fmt: skip
        """The answer to one request."""
        fields = {name: str(value) for name, value in ext.items()}
        command = RemotingCommand(
            code, fields, body, serialize_type=serialize_type, version=version
        )
        return await self.client.request(self.broker.address, command, TIMEOUT_MS)

    async def send(
        self, topic: str = "T", body: bytes = b"body", text: str = "", code: int = 310, **ext: Any
    ) -> RemotingCommand:
        """SEND_MESSAGE_V2 as a Java producer sends it, with other fields as given."""
        options = {name: ext.pop(name) for name in ("serialize_type", "version") if name in ext}
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000,
            "h": 0, "i": text or f"UNIQ_KEY\x01{UNIQUE}\x02WAIT\x01true\x02TAGS\x01A\x02", "j": 0,
            "k": "false", "m": "false", "n": "broker-a",
        }  # fmt: skip
        return await self.ask(code, body, **{**fields, **ext}, **options)

    async def pull(self, topic: str = "T", queue: int = 0, offset: int = 0, **ext: Any) -> Any:
        """PULL_MESSAGE, or another `code`, with its own subscription."""
        code = ext.pop("code", 11)
        fields = {
            "consumerGroup": "CG", "topic": topic, "queueId": queue, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subscription": "*", "subVersion": 0,
        }  # fmt: skip
        return await self.ask(code, **{**fields, **ext})

    async def make_topic(self, name: str, queues: int = 4, perm: int = 6) -> None:
        """UPDATE_AND_CREATE_TOPIC."""
        answer = await self.ask(
            17, topic=name, defaultTopic="TBW102", readQueueNums=queues, writeQueueNums=queues,
            perm=perm, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
        )  # fmt: skip
        assert answer.code == 0, answer.remark


def records(answer: RemotingCommand) -> list[MessageRecord]:
    """The messages in the body of an answer."""
    return GetResult(GetStatus.FOUND, 0, 0, 0, 0, bytes(answer.body)).messages()


async def until_registered(server: NameServer) -> None:
    """A machine that stands still may make a broker register only with its second attempt."""
    await until(lambda: server.table.route(SELF_TEST_TOPIC) is not None)


@contextlib.asynccontextmanager
async def running(config: BrokerConfig, **options: Any) -> AsyncIterator[Asker]:
    """Start, connect, and stop cleanly at the end."""
    broker, client = Broker(config, **options), patient_client()
    await broker.start()
    try:
        yield Asker(broker, client)
    finally:
        await client.close()
        await broker.stop()
