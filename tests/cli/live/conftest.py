"""A group that is behind."""

from __future__ import annotations

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer
from broker_core.embedded.embedded_broker import EmbeddedBroker


@pytest.fixture
def group(broker: EmbeddedBroker, topic: str) -> str:
    """A group that has consumed 2 of 6 messages in two queues."""
    name = f"{topic}-group"
    with SyncAdmin(broker.name_server) as admin, SyncProducer(broker.name_server) as producer:
        admin.create_topic(topic, queue_count=2)
        admin.create_group(name)
        for queue_id in (0, 1):
            queue = MessageQueue(topic, "broker-a", queue_id)
            for number in range(3):
                producer.send(OutgoingMessage(topic, b"%d" % number), queue=queue)
            admin.commit_offset(name, queue, 1)
    return name
