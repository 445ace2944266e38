"""`EmbeddedBroker` with helpers for notebooks: options, topics, sending and reading messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import broker_core
from broker_core import OutgoingMessage, ReceivedMessage, SyncAdmin, SyncProducer, SyncPullConsumer
from pyspark_rmq.environment.session import warn_of_environment


class EmbeddedBroker(broker_core.EmbeddedBroker):
    """A RocketMQ broker in a separate process, stopped at the end of the `with` block.

    with EmbeddedBroker() as broker:
        broker.create_topic("orders", queue_count=4)
        broker.produce("orders", ["a", "b"])
        spark.read.format("rmq").options(**broker.options).option("subscribe", "orders").load()
    """

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    @property
    def options(self) -> dict[str, str]:
        """For `.options(**…)` of a reader or writer."""
        warn_of_environment()
        return {"rmq.namesrv.addr": self.name_server}

    def create_topic(self, name: str, queue_count: int = 4) -> None:
        """Create a topic, or change the number of its queues."""
        with SyncAdmin(self.name_server) as admin:
            admin.create_topic(name, queue_count=queue_count)

    def produce(
        self,
        topic: str,
        bodies: Iterable[bytes | str],
        *,
        tags: str = "",
        keys: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Send messages, wait until they are stored and return their number."""
        messages = (
            OutgoingMessage(
                topic,
                body.encode() if isinstance(body, str) else body,
                tags=tags,
                keys=keys,
                properties=properties or {},
            )
            for body in bodies
        )
        with SyncProducer(self.name_server) as producer:
            return len(producer.send_many(messages))

    def consume(self, topic: str) -> list[ReceivedMessage]:
        """Every message of a topic, queue by queue."""
        found: list[ReceivedMessage] = []
        with SyncPullConsumer(self.name_server) as consumer:
            for queue in consumer.queues(topic):
                offset = consumer.min_offset(queue)
                end = consumer.max_offset(queue)
                while offset < end:
                    result = consumer.pull(queue, offset)
                    found += result.messages
                    if result.next_offset <= offset:
                        break
                    offset = result.next_offset
        return found
