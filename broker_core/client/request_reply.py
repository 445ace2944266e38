"""Request and reply through topics: a message that waits for the answer of its consumer.

    requester ─ message with CORRELATION_ID, REPLY_TO_CLIENT, TTL ─► topic ─► consumer
        ▲                                                                         │ reply
        └── pushed on the requester's own connection ── broker ◄── SEND_REPLY ────┘

The requester must be known to the broker that gets the reply, which any broker of the cluster may
be: so it announces itself to all of them before it asks. An answer cannot wait: when the requester
is gone, the replier is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.client.client_instance import ClientInstance
from broker_core.client.outgoing_message import OutgoingMessage, body_bytes
from broker_core.client.received_message import ReceivedMessage
from broker_core.client.route_cache import TEMPLATE_TOPIC
from broker_core.codec import message_properties as names
from broker_core.codec.compression import compress_body
from broker_core.codec.message_properties import encode_properties
from broker_core.codec.message_record import COMPRESSED
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.send_request import SendRequest, send_request_fields
from broker_core.errors import InvalidArgument, TopicNotExist
from broker_core.protocol_codes import RequestCode

REPLY_TIMEOUT_MS: Final = 3_000
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
_TOPICS_REMEMBERED: Final = 10_000
_CLUSTER: Final = "CLUSTER"
_MESSAGE_TYPE: Final = "MSG_TYPE"
_REPLY: Final = "reply"


async def announce_requester(client: ClientInstance, topic: str) -> None:
    """See to it that every broker that may get the reply knows this client."""
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
    """The answer to a message that expects one; `InvalidArgument` for others."""
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
    """Hand the answer to the broker that the request came from, which knows the requester best."""
    queues = await client.routes.publish_queues(message.topic)
    brokers = [queue.broker_name for queue in queues]
    broker_name = request.queue.broker_name
    if broker_name not in brokers:
        broker_name = brokers[0]
    # Brokers of 5.x fail on a request without a body; eight bytes stand for none.
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
