"""What `ClusterActions` does, with a client that lives for one call."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from broker_core.client.admin.admin import Admin
from broker_core.client.blocking.admin import SyncAdmin
from broker_core.client.blocking.consumers import SyncPullConsumer
from broker_core.client.blocking.producers import SyncProducer
from broker_core.client.connection.config import ClientConfig
from broker_core.client.pull.message_display import html_facts
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.wire.topic_name import topic_name_problem
from broker_core.errors import InvalidArgument, RmqError, TopicNotExist, explained
from broker_core.notebook import display, figures
from broker_core.notebook.message_rows import SharedFields, outgoing_messages
from broker_core.notebook.sending import send_evenly
from broker_core.notebook.tables import moment, table

T = TypeVar("T")


@contextlib.contextmanager
def known_topic(config: ClientConfig, topic: str) -> Iterator[None]:
    """Raises an error that says what to do for a name that is none, or has no topic."""
    problem = topic_name_problem(topic)
    if problem is not None:
        raise InvalidArgument(f"topic {topic!r:.140}: {problem}")
    try:
        yield
    except TopicNotExist as error:
        text = (
            f"topic {topic} does not exist at {';'.join(config.name_servers):.200}: look at the"
            f' spelling, or create it with create_topic("{topic}")'
        )
        raise TopicNotExist(error.code, explained(text, "topic-not-found")) from None


def gather(config: ClientConfig, ask: Callable[[Admin], Awaitable[T]]) -> T:
    """The result of `ask` for an administrator of the cluster."""

    async def run() -> T:
        return await ask(admin.asynchronous)

    with SyncAdmin(config) as admin:
        return admin.call(run())


def produce(config: ClientConfig, messages: object, shared: SharedFields) -> int:
    """Send messages evenly over the queues and return their number."""
    rows = outgoing_messages(messages, shared)
    with known_topic(config, shared.topic), SyncProducer(config) as producer:
        return producer.call(send_evenly(producer.asynchronous, shared.topic, rows))


def consume(config: ClientConfig, topic: str) -> list[ReceivedMessage]:
    """Every message of a topic, queue by queue."""
    found: list[ReceivedMessage] = []
    with known_topic(config, topic), SyncPullConsumer(config) as consumer:
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


def last_messages(config: ClientConfig, topic: str, count: int) -> list[ReceivedMessage]:
    """The newest messages of a topic, oldest first."""
    with known_topic(config, topic), SyncPullConsumer(config) as consumer:
        return consumer.call(figures.last_messages(consumer.asynchronous, topic, count))


def topic_table(config: ClientConfig, *, system: bool) -> Any:
    """One row for each topic."""
    found = gather(config, lambda admin: figures.all_topic_figures(admin, system=system))
    rows = [
        (each.topic, len(each.queues), each.messages, each.rate, moment(each.newest_ms))
        for each in found
    ]
    return table(("topic", "queues", "messages", "messages_per_s", "newest"), rows)


def lag_table(config: ClientConfig, group: str, topic: str) -> Any:
    """One row for each group and queue."""
    with known_topic(config, topic) if topic else contextlib.nullcontext():
        found = gather(config, lambda admin: figures.group_lags(admin, group, topic))
    rows = [
        (
            lag.group,
            *lag.queue,
            lag.progress.consumed,
            lag.progress.end,
            lag.progress.behind,
            moment(lag.progress.last_ms),
        )
        for lag in found
    ]
    columns = "group", "topic", "broker", "queue", "committed", "next", "lag", "last_consumed"
    return table(columns, rows)


def stats_table(config: ClientConfig) -> Any:
    """One row for each figure of each broker."""
    found = gather(config, figures.broker_figures)
    rows = [(b.name, name, b.facts[name]) for b in found for name in sorted(b.facts)]
    return table(("broker", "name", "value"), rows)


def picture_text(config: ClientConfig, title: str) -> str:
    """The cluster as text, or why there is nothing to show."""
    try:
        return display.cluster_text(_picture(config, title))
    except RmqError as error:
        return f"{title}: {error}"


def picture_html(config: ClientConfig, title: str) -> str:
    """The cluster as HTML, or why there is nothing to show."""
    try:
        return display.cluster_html(_picture(config, title))
    except RmqError as error:
        return html_facts([(title, str(error))])


def _picture(config: ClientConfig, title: str) -> display.ClusterPicture:
    async def ask(admin: Admin) -> display.ClusterPicture:
        topics = await figures.user_topics(admin)
        shown = topics[: display.TOPICS_SHOWN]
        return display.ClusterPicture(
            title,
            ";".join(config.name_servers),
            await figures.broker_figures(admin),
            await figures.figures_of(admin, shown),
            len(topics) - len(shown),
            await figures.group_lags(admin),
        )

    return gather(config, ask)
