"""Asks brokers whether they can filter by an expression before a consumer relies on it."""

from __future__ import annotations

from broker_core.client.client_instance import ClientInstance
from broker_core.codec.json_dialect import emit_json
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.subscription_data import SubscriptionData, subscription_object
from broker_core.errors import TopicNotExist
from broker_core.protocol_codes import RequestCode


async def check_subscription(
    client: ClientInstance, group: str, subscription: SubscriptionData
) -> None:
    """Raises the broker's refusal of a SQL92 expression; tags need no check."""
    if subscription.is_by_tag:
        return
    try:
        queues = await client.routes.subscribe_queues(subscription.topic)
    except TopicNotExist:
        return
    body = emit_json(
        {
            "clientId": client.client_id,
            "group": group,
            "subscriptionData": subscription_object(subscription),
        }
    )
    for name in sorted({queue.broker_name for queue in queues}):
        command = RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, {}, body)
        await client.ask_broker(name, command, or_any=True)
