"""Which brokers and topics the name servers know; retries while they know no broker.

A name server that was just started knows no broker until they register again, within 30 seconds.
Until then a missing topic or broker means nothing.
"""

from __future__ import annotations

from broker_core import ClientInstance, SinkClient, errors


async def known_masters(client: ClientInstance, retry_for_ms: int) -> tuple[str, ...]:
    """Names of all brokers with a master; waits for the first, else raises `ConnectionLost`."""
    return await SinkClient(client, retry_for_ms=retry_for_ms).masters(at_least_one=True)


async def is_known_topic(client: ClientInstance, topic: str, retry_for_ms: int) -> bool:
    """Whether a topic exists, according to name servers that know at least one broker."""
    try:
        await client.routes.route(topic)
    except (errors.TopicNotExist, errors.ConnectionLost, errors.RequestTimeout):
        await known_masters(client, retry_for_ms)
    else:
        return True
    try:
        await client.routes.route(topic)
    except errors.TopicNotExist:
        return False
    return True
