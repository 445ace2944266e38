"""Creates one or many topics on several brokers and waits until the name servers show them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from broker_core.client.connection.instance import ClientInstance, checked
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.topic_config import TopicConfig, topic_config_object
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TEMPLATE_TOPIC
from broker_core.errors import RequestTimeout, TopicNotExist
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.runtime.clock import sleep

TOPICS_PER_REQUEST: Final = 500
_AT_ONCE: Final = 16
_SHOWN_POLL_S: Final = 0.05

T = TypeVar("T")


async def create_on(
    client: ClientInstance,
    addresses: Iterable[str],
    topics: Sequence[TopicConfig],
    timeout_ms: float,
) -> None:
    """Create or change `topics` at each of these brokers. Attributes begin with `+` or `-`."""
    for address in addresses:
        rest = topics
        # One topic goes with the request that every version has.
        while len(rest) > 1 and await _create_list(client, address, rest, timeout_ms):
            rest = rest[TOPICS_PER_REQUEST:]

        async def create_one(topic: TopicConfig, address: str = address) -> None:
            command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, _fields(topic))
            checked(await client.remoting.request(address, command, timeout_ms))

        await _each(rest, create_one)


async def until_shown(
    client: ClientInstance,
    broker_names: Iterable[str],
    topics: Iterable[TopicConfig],
    within_ms: int,
) -> None:
    """Wait until the route of each topic has its queues on all of these brokers."""
    names = tuple(broker_names)
    deadline = client.clock.monotonic() + within_ms / 1000

    async def wait(topic: TopicConfig) -> None:
        while not await _is_shown(client, topic, names):
            if client.clock.monotonic() > deadline:
                text = f"topic {topic.name} was created, but no name server showed it within"
                raise RequestTimeout(f"{text} {within_ms} ms")
            await sleep(_SHOWN_POLL_S)
        # Other users of the shared client then have the new route, too.
        await client.routes.route(topic.name, refresh=True)

    await _each(topics, wait)


async def _create_list(
    client: ClientInstance, address: str, topics: Sequence[TopicConfig], timeout_ms: float
) -> bool:
    """Create the first topics with one request; False if the broker does not know it."""
    found = [topic_config_object(topic) for topic in topics[:TOPICS_PER_REQUEST]]
    body = emit_json({"topicConfigList": found})
    command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    answer = await client.remoting.request(address, command, timeout_ms)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return False
    checked(answer)
    return True


def _fields(topic: TopicConfig) -> dict[str, str]:
    ext = {
        "topic": topic.name,
        "defaultTopic": TEMPLATE_TOPIC,
        "readQueueNums": str(topic.read_queue_count),
        "writeQueueNums": str(topic.write_queue_count),
        "perm": str(topic.perm),
        "topicFilterType": topic.filter_type,
        "topicSysFlag": str(topic.sys_flag),
        "order": "true" if topic.order else "false",
    }
    if topic.attributes:
        ext["attributes"] = ",".join(f"{key}={value}" for key, value in topic.attributes.items())
    return ext


async def _is_shown(client: ClientInstance, topic: TopicConfig, names: Sequence[str]) -> bool:
    try:
        route = await client.name_servers.route(topic.name)
    except TopicNotExist:
        return False
    expected = topic.read_queue_count, topic.write_queue_count, topic.perm
    shown = {q.broker_name: (q.read_queue_count, q.write_queue_count, q.perm) for q in route.queues}
    return all(shown.get(name) == expected for name in names)


async def _each(topics: Iterable[TopicConfig], act: Callable[[TopicConfig], Awaitable[T]]) -> None:
    """`act` for each, several at a time; raises the first error."""
    rest = iter(topics)

    async def work() -> None:
        for topic in rest:
            await act(topic)

    workers = [asyncio.ensure_future(work()) for _ in range(_AT_ONCE)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
