"""Request and reply through topics: a message whose sender waits for a consumer's reply.

    requester ─ message with CORRELATION_ID, REPLY_TO_CLIENT, TTL ─► topic ─► consumer
        ▲                                                                         │ reply
        └── pushed on the requester's own connection ── broker ◄── SEND_REPLY ────┘

Any broker of the cluster may get the reply and must know the requester, so the requester sends
heartbeats to all of them first. Replies are not stored: if the requester is gone, the replier gets
an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage, body_bytes
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.compression import compress_body
from broker_core.codec.records.message_properties import encode_properties
from broker_core.codec.records.message_record import COMPRESSED
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.send_request import SendRequest, send_request_fields
from broker_core.codec.wire.topic_name import REPLY_TOPIC_SUFFIX, TEMPLATE_TOPIC
from broker_core.errors import InvalidArgument, TopicNotExist
from broker_core.protocol_codes import RequestCode

REPLY_TIMEOUT_MS: Final = 3_000
_TOPICS_REMEMBERED: Final = 10_000
_CLUSTER: Final = "CLUSTER"
_MESSAGE_TYPE: Final = "MSG_TYPE"
_REPLY: Final = "reply"


async def announce_requester(client: ClientInstance, topic: str) -> None:
    """Make this client known to every broker that may get the reply."""
    routes, announced = client.routes, client.replies.announced
    if topic in announced:
        return
    await routes.publish_queues(topic)
    is_new = routes.is_template(topic)
    route = await routes.route(TEMPLATE_TOPIC if is_new else topic)
    for cluster in {broker.cluster for broker in route.brokers}:
        try:
            await routes.route(f"{cluster}{REPLY_TOPIC_SUFFIX}")
        except TopicNotExist:
            continue
    await client.send_heartbeats()
    if not is_new and len(announced) < _TOPICS_REMEMBERED:
        announced.add(topic)


def reply_to(
    request: ReceivedMessage, body: bytes, properties: Mapping[str, str]
) -> OutgoingMessage:
    """The reply message. Raises `InvalidArgument` if `request` does not expect a reply."""
    asked = request.properties
    cluster, client_id = asked.get(_CLUSTER, ""), asked.get(names.REPLY_TO_CLIENT, "")
    correlation_id = asked.get(names.CORRELATION_ID, "")
    if not cluster or not client_id or not correlation_id:
        raise InvalidArgument(
            f"{request!r} expects no reply: it has no {names.CORRELATION_ID},"
            f" {names.REPLY_TO_CLIENT} and {_CLUSTER}"
        )
    own = {
        _MESSAGE_TYPE: _REPLY,
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: client_id,
        names.TTL: asked.get(names.TTL, str(REPLY_TIMEOUT_MS)),
    }
    return OutgoingMessage(
        f"{cluster}{REPLY_TOPIC_SUFFIX}", body_bytes(body), properties={**properties, **own}
    )


async def send_reply(
    client: ClientInstance,
    group: str,
    request: ReceivedMessage,
    message: OutgoingMessage,
    timeout_ms: float,
) -> None:
    """Send the reply, preferably to the broker that the request came from."""
    queues = await client.routes.publish_queues(message.topic)
    brokers = [queue.broker_name for queue in queues]
    broker_name = request.queue.broker_name
    if broker_name not in brokers:
        broker_name = brokers[0]
    # Brokers of 5.x reject a request without a body; an empty compressed body has eight bytes.
    body, sys_flag = message.body, 0
    if not body:
        body, sys_flag = compress_body(body), COMPRESSED
    fields = SendRequest(
        group,
        message.topic,
        TEMPLATE_TOPIC,
        4,
        0,
        sys_flag,
        client.clock.wall_ms(),
        0,
        encode_properties(message.properties).decode(),
    )
    command = RemotingCommand(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        {**send_request_fields(fields), "n": broker_name},
        body,
    )
    await client.ask_broker(broker_name, command, timeout_ms)
