"""Requests that only our broker answers, for readers such as the Spark source.

`ask_topic_ends`     the durable end of every queue of a topic, and the identity of the log
`ask_queue_remains`  what is left of queues that no route shows any more
`ask_local_range`    how to read a queue from the broker's files on the same host
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker_core.client.connection.instance import ClientInstance
from broker_core.codec.json.fields import I64_MAX, I64_MIN, whole_number
from broker_core.codec.wire.bodies.local_range import LocalRange, parse_local_range
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    InvalidArgument,
    RemoteError,
    RequestTimeout,
    RmqError,
    ServiceNotAvailable,
    SystemBusy,
    TopicNotExist,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import MASTER_ID, RequestCode, ResponseCode, RunAnswer

_log = logging.getLogger(__name__)

_QUEUES_MAX: Final = 1 << 20


class TopicEnds(NamedTuple):
    """The durable end of each queue, by queue id."""

    ends: tuple[int, ...]
    store_id: str
    epoch: str
    from_slave: bool = False
    """The master was down and may have more."""
    run: str = ""
    """The run of the log that wrote the last message; pass it to the next `ask_topic_ends`."""
    has_run: bool | None = None
    """Whether the log contains the run that was passed; None if unknown."""
    runs: str = ""
    """The latest runs of the log; pass them to the next `ask_topic_ends`, too."""
    same: tuple[int, ...] = ()
    """The log lacks the run: up to these offsets it is the log that was read; empty if unknown."""


class QueueRemains(NamedTuple):
    """What a master knows about queues that no route shows, by queue id."""

    offered: Mapping[int, int]
    """Queues that can still be read -> their next offset."""
    gone: Mapping[int, int]
    """Queues that can no longer be read -> the offset that their next message would get."""
    names_its_log: bool
    """Our broker: it lists the queues of the topic itself, and never restarts their numbering."""


async def ask_queue_remains(
    client: ClientInstance, topic: str, broker_name: str, queue_ids: Iterable[int], group: str
) -> QueueRemains:
    """Ask the master directly, independent of routes; raises when it does not answer."""
    address = client.routes.brokers().get(broker_name, {}).get(MASTER_ID)
    if address is None:
        address = await _registered_address(client, broker_name)
    waited_ms = client.config.request_timeout_ms
    capabilities = await client.capabilities.of(address)
    if not client.capabilities.is_known(address):
        text = f"broker {broker_name} does not report its capabilities yet"
        raise SystemBusy(ResponseCode.SYSTEM_BUSY, text)
    ends: tuple[int, ...] = ()
    if capabilities.topic_ends:
        command = RemotingCommand(RequestCode.TOPIC_ENDS, {"topic": topic, "consumerGroup": group})
        answer = await client.remoting.request(address, command, waited_ms)
        if answer.code == ResponseCode.SUCCESS:
            found = _parsed(answer, broker_name)
            if found.from_slave:
                text = (
                    f"only a slave of broker {broker_name} answers, which may not know all queues"
                )
                raise SystemBusy(ResponseCode.SYSTEM_BUSY, text)
            ends = found.ends
        elif answer.code != TopicNotExist.response_code:
            raise RemoteError.for_code(answer.code, answer.remark)
    offered: dict[int, int] = {}
    gone: dict[int, int] = {}
    for queue_id in queue_ids:
        if queue_id < len(ends):
            offered[queue_id] = ends[queue_id]
            continue
        fields = {"topic": topic, "queueId": str(queue_id), "bname": broker_name}
        command = RemotingCommand(RequestCode.GET_MAX_OFFSET, fields)
        answer = await client.remoting.request(address, command, waited_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise RemoteError.for_code(answer.code, answer.remark)
        try:
            end = whole_number(answer.ext.get("offset", ""), "offset", I64_MIN, I64_MAX)
        except InvalidArgument as error:
            raise UnexpectedAnswer(f"{broker_name}: {error}") from None
        gone[queue_id] = max(end, 0)
    return QueueRemains(offered, gone, capabilities.topic_ends)


async def _registered_address(client: ClientInstance, broker_name: str) -> str:
    """The address of a broker that is in no route of this client."""
    known = (await client.name_servers.cluster_info()).brokers.get(broker_name)
    address = known.addresses.get(MASTER_ID) if known is not None else None
    if address is None:
        text = f"no name server knows a master of broker {broker_name!r:.100}"
        raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
    return client.routes.rewritten(address)


async def ask_topic_ends(
    client: ClientInstance,
    topic: str,
    broker_name: str,
    group: str,
    run: str = "",
    runs: str = "",
) -> TopicEnds | None:
    """None for a broker that does not support the request; raises when no member answers.

    `run` and `runs` come from an earlier answer. Raises `ServiceNotAvailable` when only a slave
    answers that does not know that run: retry until the master is back.
    """
    await client.routes.route(topic)
    address = client.routes.broker_address(broker_name, MASTER_ID, or_any=True)
    try:
        if not (await client.capabilities.of(address)).topic_ends:
            if not client.capabilities.is_known(address):
                # Falling back to plain offsets could return ones that a power loss takes back.
                text = f"broker {broker_name} does not report its capabilities yet"
                raise SystemBusy(ResponseCode.SYSTEM_BUSY, text)
            return None
    except (ConnectionLost, RequestTimeout):
        # A slave may be in the new route.
        client.routes.refresh_broker_soon(broker_name)
        raise
    ext = {"topic": topic, "consumerGroup": group}
    if run:
        ext["run"] = run
    if runs:
        ext["runs"] = runs
    command = RemotingCommand(RequestCode.TOPIC_ENDS, ext)
    answer = await client.request_broker(broker_name, command, or_any=True)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        # Another broker answers at this address now.
        client.capabilities.forget(address)
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError.for_code(answer.code, answer.remark)
    return _parsed(answer, broker_name)


async def ask_local_range(
    client: ClientInstance, queue: MessageQueue, group: str
) -> LocalRange | None:
    """None when the queue cannot be read from files: another product, another host, no answer."""
    try:
        await client.routes.route(queue.topic)
        address = client.routes.broker_address(queue.broker_name)
        if not (await client.capabilities.of(address)).local_reads:
            return None
        fields = {"consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id)}
        command = RemotingCommand(RequestCode.LOCAL_RANGE, fields)
        answer = await client.request_broker(queue.broker_name, command)
        return parse_local_range(answer.ext) if answer.code == ResponseCode.SUCCESS else None
    except RmqError as error:
        # The read over the network reports the error if it persists.
        _log.info("%s is not read from files: %s", queue, error)
        return None


def _parsed(answer: RemotingCommand, broker_name: str) -> TopicEnds:
    ext = answer.ext
    try:
        ends = _offsets(ext.get("ends", ""))
        same = _offsets(ext["same"]) if "same" in ext else ()
    except InvalidArgument as error:
        raise UnexpectedAnswer(f"{broker_name}: {error}") from None
    if same and len(same) != len(ends):
        raise UnexpectedAnswer(
            f"{broker_name}: {len(ends)} end offsets, but {len(same)} values in same"
        )
    has_run = ext.get("hasRun", "")
    if has_run == RunAnswer.UNSURE.value:
        raise ServiceNotAvailable(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the only broker of {broker_name} that answers may lack messages that were read",
        )
    return TopicEnds(
        ends,
        ext.get("storeId", ""),
        ext.get("epoch", ""),
        ext.get("slave") == "1",
        ext.get("run", ""),
        {RunAnswer.HAS.value: True, RunAnswer.LACKS.value: False}.get(has_run),
        ext.get("runs", ""),
        same,
    )


def _offsets(text: str) -> tuple[int, ...]:
    texts = text.split(",", _QUEUES_MAX)
    return tuple(whole_number(found, "offsets", 0, I64_MAX) for found in texts)
