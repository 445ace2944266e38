"""Asks a broker of ours where all queues of a topic end, durably, and of which log that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from broker_core.client.client_instance import ClientInstance
from broker_core.codec.json_fields import I64_MAX, I64_MIN, whole_number
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    InvalidArgument,
    RemoteError,
    RequestTimeout,
    ServiceNotAvailable,
    SystemBusy,
    TopicNotExist,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode, ResponseCode, RunAnswer

_MASTER_ID: Final = 0
_QUEUES_MAX: Final = 1 << 20


class TopicEnds(NamedTuple):
    """The next offset of each queue, by queue id; all before it survives a power cut."""

    ends: tuple[int, ...]
    store_id: str
    epoch: str
    from_slave: bool = False
    """Whether the master was not there: it may have more."""
    run: str = ""
    """The run of the log that wrote the last of these messages; to be asked with next time."""
    has_run: bool | None = None
    """Whether the log has all of the run that was asked with; None when that is not known."""


class QueueRemains(NamedTuple):
    """What a master says about queues of a topic that no route shows, by queue id."""

    offered: Mapping[int, int]
    """Queues that can be read all the same -> their next offset."""
    gone: Mapping[int, int]
    """Queues that cannot be read any more -> the offset that their next message would get."""
    names_its_log: bool
    """A broker of ours: it has said itself which queues the topic has, and never numbers anew."""


async def ask_queue_remains(
    client: ClientInstance, topic: str, broker_name: str, queue_ids: Iterable[int], group: str
) -> QueueRemains:
    """Ask the master itself, whatever routes say; raises when it does not answer."""
    address = client.routes.brokers().get(broker_name, {}).get(_MASTER_ID)
    if address is None:
        address = await _registered_address(client, broker_name)
    waited_ms = client.config.request_timeout_ms
    capabilities = await client.capabilities.of(address)
    if not client.capabilities.is_known(address):
        text = f"broker {broker_name} does not say yet what it can"
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
    """A broker that is in no route of this client may still be there, without the topic."""
    known = (await client.name_servers.cluster_info()).brokers.get(broker_name)
    address = known.addresses.get(_MASTER_ID) if known is not None else None
    if address is None:
        text = f"no name server knows a master of broker {broker_name!r:.100}"
        raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
    return client.routes.rewritten(address)


async def ask_topic_ends(
    client: ClientInstance, topic: str, broker_name: str, group: str, run: str = ""
) -> TopicEnds | None:
    """None for a broker that does not know the question; raises when none answers.

    `run` is what an earlier answer named. `ServiceNotAvailable` is raised by a slave that does not
    know that run: its master has to be waited for.
    """
    await client.routes.route(topic)
    address = client.routes.broker_address(broker_name, _MASTER_ID, or_any=True)
    try:
        if not (await client.capabilities.of(address)).topic_ends:
            if not client.capabilities.is_known(address):
                # Taken for a no, its offsets would be those that a power cut may take back.
                text = f"broker {broker_name} does not say yet what it can"
                raise SystemBusy(ResponseCode.SYSTEM_BUSY, text)
            return None
    except (ConnectionLost, RequestTimeout):
        # A slave may have taken its place in the route.
        client.routes.refresh_broker_soon(broker_name)
        raise
    ext = {"topic": topic, "consumerGroup": group}
    if run:
        ext["run"] = run
    command = RemotingCommand(RequestCode.TOPIC_ENDS, ext)
    answer = await client.request_broker(broker_name, command, or_any=True)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        # Another broker took its place.
        client.capabilities.forget(address)
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError.for_code(answer.code, answer.remark)
    return _parsed(answer, broker_name)


def _parsed(answer: RemotingCommand, broker_name: str) -> TopicEnds:
    texts = answer.ext.get("ends", "").split(",", _QUEUES_MAX)
    try:
        ends = tuple(whole_number(text, "ends", 0, I64_MAX) for text in texts)
    except InvalidArgument as error:
        raise UnexpectedAnswer(f"{broker_name}: {error}") from None
    ext = answer.ext
    has_run = ext.get("hasRun", "")
    if has_run == RunAnswer.UNSURE.value:
        raise ServiceNotAvailable(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"only a broker of {broker_name} answers that may not have all that was read",
        )
    return TopicEnds(
        ends,
        ext.get("storeId", ""),
        ext.get("epoch", ""),
        ext.get("slave") == "1",
        ext.get("run", ""),
        {RunAnswer.HAS.value: True, RunAnswer.LACKS.value: False}.get(has_run),
    )
