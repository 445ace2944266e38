"""SQL92 filters: our evaluator, our broker and Apache's give the same messages for the same text.

One queue holds a message for each set of properties; a pull that carries an expression says which
of them match. What Apache refuses we refuse, but for the few texts that `sql_cases` lists.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.push.consumer import PushConsumer
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.sql.filter import SqlFilter
from broker_core.codec.wire.bodies.heartbeat_data import FROM_FIRST_OFFSET
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import GetStatus, RequestCode
from broker_core.remoting.client import RemotingClient
from broker_core.store.reads.message_reader import GetResult
from tests.codec.sql_cases import (
    DOUBTS,
    MESSAGES,
    REFUSED,
    REFUSED_BY_APACHE,
    REFUSED_BY_US,
    random_tree,
    rendered,
)
from tests.interop.client_ground import Ground
from tests.interop.clusters import KINDS, OURS, Cluster, cluster, run_or_skip
from tests.interop.consumer_ground import Collected, ground, patient_config
from tests.interop.driven_client import ClientError
from tests.interop.java_client import CLIENT_VERSIONS, JavaClient
from tests.interop.maven_artifacts import PeerUnavailable
from tests.interop.server_processes import BrokerCluster
from tests.patient_client import patient_client

pytestmark = pytest.mark.interop

TOPIC = "Properties"
FILTERING = {"enablePropertyFilter": "true"}
RANDOM_COUNT = 400
TIMEOUT_MS = 60_000
SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")

FOUND, NONE_MATCHES, REFUSES = 0, 20, 23


class Asker:
    """Raw requests to the one broker of a cluster."""

    def __init__(self, found: Cluster, client: RemotingClient) -> None:
        self._address = found.broker.address
        self._client = client

    async def ask(self, code: int, body: bytes = b"", **ext: Any) -> RemotingCommand:
        fields = {name: str(value) for name, value in ext.items()}
        command = RemotingCommand(code, fields, body, version=409)
        return await self._client.request(self._address, command, TIMEOUT_MS)

    async def send(self, number: int, properties: dict[str, str]) -> None:
        text = encode_properties({"UNIQ_KEY": f"{number:032X}", "WAIT": "true", **properties})
        answer = await self.ask(
            RequestCode.SEND_MESSAGE_V2, b"%d" % number, a="PG", b=TOPIC, c="TBW102", d=1, e=0, f=0,
            g=1_700_000_000_000, h=0, i=text.decode(), j=0, k="false", m="false",
        )  # fmt: skip
        assert (answer.code, answer.ext["queueOffset"]) == (0, str(number)), answer.remark

    async def until_readable(self, count: int) -> None:
        """Brokers put a message into its queue shortly after they have answered."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for _ in range(600):
            answer = await self.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
            if answer.ext["offset"] == str(count):
                return
            await asyncio.wait((never,), timeout=0.1)
        raise AssertionError(f"{count} messages are not readable")

    async def pull(self, expression: str, offset: int = 0) -> RemotingCommand:
        return await self.ask(
            RequestCode.PULL_MESSAGE, consumerGroup="CG", topic=TOPIC, queueId=0,
            queueOffset=offset, maxMsgNums=32, sysFlag=4, commitOffset=0, suspendTimeoutMillis=0,
            subscription=expression, subVersion=0, expressionType="SQL92",
        )  # fmt: skip

    async def matching(self, expression: str) -> list[int] | str:
        """Numbers of the messages that the broker finds, or why it does not look."""
        numbers: list[int] = []
        offset = 0
        while offset < len(MESSAGES):
            answer = await self.pull(expression, offset)
            if answer.code not in (FOUND, NONE_MATCHES):
                assert answer.code == REFUSES, f"{expression}: {answer.code} {answer.remark}"
                return "refused"
            assert (answer.code == FOUND) == bool(answer.body)
            result = GetResult(GetStatus.FOUND, 0, 0, 0, 0, bytes(answer.body))
            numbers += [message.queue_offset for message in result.messages()]
            offset = int(answer.ext["nextBeginOffset"])
        return numbers

    async def check(self, expression: str) -> int:
        """CHECK_CLIENT_CONFIG."""
        subscription = {"topic": TOPIC, "subString": expression, "expressionType": "SQL92",
                        "subVersion": 1, "tagsSet": [], "codeSet": []}  # fmt: skip
        body = {"clientId": "c", "group": "CG", "subscriptionData": subscription}
        return (await self.ask(RequestCode.CHECK_CLIENT_CONFIG, json.dumps(body).encode())).code


def ours(expression: str) -> list[int]:
    judge = SqlFilter(expression)
    # Every message has these from its producer.
    common = {"UNIQ_KEY": "1", "WAIT": "true"}
    return [n for n, message in enumerate(MESSAGES) if judge.matches({**common, **message})]


def random_expressions() -> list[str]:
    seed = random.Random(20_260)
    return [rendered(random_tree(seed, 3), seed) for _ in range(RANDOM_COUNT)]


def known_to(kind: str, expressions: Iterable[str]) -> list[str]:
    """Searches came with Apache 5; before, they end what is read of an expression."""
    if kind != "apache-4.9.7":
        return list(expressions)
    return [text for text in expressions if not any(word in text.upper() for word in SEARCHES)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_broker_finds_what_our_filter_finds(
    tmp_path: Path, run_async: Callable[..., Any], summary_lines: list[str], kind: str
) -> None:
    async def scenario() -> None:
        async with cluster(kind, tmp_path, properties=FILTERING) as found:
            client = patient_client()
            try:
                await compared(Asker(found, client), kind, summary_lines)
            finally:
                await client.close()

    run_or_skip(run_async, scenario())


async def compared(asker: Asker, kind: str, summary_lines: list[str]) -> None:
    for number, properties in enumerate(MESSAGES):
        await asker.send(number, properties)
    await asker.until_readable(len(MESSAGES))
    texts = known_to(kind, [*(text for text, _ in DOUBTS), *random_expressions()])
    different = {}
    matches = 0
    for text in texts:
        theirs = await asker.matching(text)
        if theirs != ours(text):
            different[text] = (theirs, ours(text))
        matches += len(theirs)
    assert not different
    summary_lines.append(
        f"SQL92 on {kind}: {len(texts)} expressions x {len(MESSAGES)} messages alike, "
        f"{matches} matches"
    )
    is_ours = kind == OURS
    refused = list(REFUSED) + list(REFUSED_BY_US if is_ours else REFUSED_BY_APACHE)
    accepted = REFUSED_BY_APACHE if is_ours else REFUSED_BY_US
    wrong: dict[str, Any] = {}
    for text in known_to(kind, [*refused, *accepted]):
        expected = REFUSES if text in refused else 0
        if (code := await asker.check(text)) != expected:
            wrong[text] = code
        # Apache answers a pull that carries what it cannot read with every message.
        if is_ours and (await asker.matching(text) == "refused") != (expected == REFUSES):
            wrong[text] = "pull"
    assert not wrong


@pytest.mark.parametrize("kind", KINDS)
def test_our_consumers_by_sql(tmp_path: Path, run_async: Callable[..., Any], kind: str) -> None:
    """Pull, stream and push of our client; what was there before and what comes later."""
    expression = "price BETWEEN 10 AND 14 AND color <> 'red'"

    async def scenario() -> None:
        async with ground(kind, tmp_path, properties=FILTERING) as at:
            queue = (await at.topic("Sql", 1))[0]
            for number in range(40):
                properties = {"price": str(number), "color": "red" if number % 2 else "blue"}
                message = OutgoingMessage("Sql", b"%d" % number, properties=properties)
                await at.producer.send(message, queue=queue)
            await at.readable(queue, 40)
            pulled = await at.puller.pull(queue, 0, expression=expression, expression_type="SQL92")
            assert [message.body for message in pulled.messages] == [b"10", b"12", b"14"]
            offsets: list[int] = []
            stream = at.puller.stream(queue, 0, 40, expression=expression, expression_type="SQL92")
            async with stream:
                async for run in stream:
                    offsets += range(run.first_offset, run.until_offset)
            assert offsets == [10, 12, 14]
            got = Collected()
            config = patient_config(at.cluster.name_server)
            consumer = PushConsumer(config, "SQLERS", got, from_where=FROM_FIRST_OFFSET)
            consumer.subscribe("Sql", expression, "SQL92")
            async with consumer:
                await got.until_bodies([b"10", b"12", b"14"])
                for price in ("99", "many", "11"):
                    await at.send("Sql", [b"colourless"], properties={"price": price})
                    properties = {"price": price, "color": "green"}
                    await at.send("Sql", [price.encode()], properties=properties)
                await got.until_bodies([b"11"])
            assert sorted(got.bodies()) == [b"10", b"11", b"12", b"14"]

    run_or_skip(run_async, scenario())


def test_java_push_consumers_without_the_setting(tmp_path: Path) -> None:
    try:
        java = JavaClient(CLIENT_VERSIONS[0])
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    with java, BrokerCluster(OURS, tmp_path) as found:
        ground = Ground(java, found, "nosql")
        with pytest.raises(ClientError, match="does not filter by SQL92"):
            ground.push(ground.topic(), sql="a = 1")
        ground.close()
