"""Topics of the sink: looked up or created on the driver, before any task runs."""

from __future__ import annotations

import logging

from broker_core import Admin, ClientInstance, MessageQueue, errors
from pyspark_rmq.connections import connect
from pyspark_rmq.sink.known_brokers import is_known_topic
from pyspark_rmq.sink.sink_options import SinkOptions

_log = logging.getLogger(__name__)


def require_topics(options: SinkOptions) -> None:
    """Make sure, on the driver, that the topics named by options exist.

    Raises `InvalidArgument` for a missing topic that may not be created. Topics of the column
    `topic` are looked up by tasks.
    """
    names = [name for name in (options.topic, options.oversize_topic) if name]
    if not names:
        return
    connected = connect(options.connection)
    for name in names:
        connected.call(topic_queues(connected.client, options, name))


async def topic_queues(
    client: ClientInstance, options: SinkOptions, topic: str
) -> tuple[MessageQueue, ...]:
    """The writable queues of a topic, which is created first if the options say so."""
    routes = client.routes
    if not await is_known_topic(client, topic, options.retry_for_ms):
        makers = await _makers(client, options, topic)
        # Another task may do the same at this moment: both ask for the same topic.
        try:
            await Admin(client).create_topic(
                topic, queue_count=options.topic_queue_count, broker_names=makers
            )
        except errors.NoPermission as error:
            raise _missing(topic, f"this account may not create it ({error})") from error
        _log.info("topic %s is new, with %d queues", topic, options.topic_queue_count)
        await routes.route(topic, refresh=True)
    return await routes.publish_queues(topic)


async def _makers(client: ClientInstance, options: SinkOptions, topic: str) -> list[str] | None:
    """Names of the brokers that create a missing topic; None: all of the cluster."""
    if options.creates_topics:
        return None
    if not options.asks_broker_for_topics:
        raise _missing(topic, "createTopic=never creates none")
    try:
        queues = await client.routes.publish_queues(topic)
    except errors.TopicNotExist as error:
        raise _missing(
            topic, "no broker creates topics on sends (autoCreateTopicEnable)"
        ) from error
    return sorted({queue.broker_name for queue in queues})


def _missing(topic: str, reason: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(
        f"topic {topic!r:.200} does not exist, and {reason}: create it, or give"
        " createTopic=ifMissing"
    )
