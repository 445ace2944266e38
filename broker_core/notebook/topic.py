"""`Topic`: one topic of a cluster, with its messages and figures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.pull.message_display import body_text, html_facts, user_properties
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.errors import InvalidArgument, RmqError
from broker_core.notebook import display, figures, operations
from broker_core.notebook.tables import moment, table

_SHOWN_MESSAGES: Final = 5
_TAIL_MAX: Final = 100_000


class Home(Protocol):
    """The cluster of a topic."""

    def said_to_be_stopped(self) -> AbstractContextManager[None]: ...

    @property
    def client_config(self) -> ClientConfig: ...

    def produce(self, topic: str, messages: Any, **fields: Any) -> int: ...


class Printer(Protocol):
    """IPython's pretty printer."""

    def text(self, text: str) -> None: ...


class Topic:
    """One topic of a cluster; from `broker.topic(name)`."""

    def __init__(self, home: Any, name: str) -> None:
        self._home: Home = home
        self.name = name

    def __repr__(self) -> str:
        return f"<Topic {self.name} of {self._home!r}>"

    @property
    def client_config(self) -> ClientConfig:
        """The configuration of a client of its cluster."""
        return self._home.client_config

    def produce(self, messages: Any, **fields: Any) -> int:
        """As `produce` of the cluster."""
        return self._home.produce(self.name, messages, **fields)

    def messages(self, count: int = 10) -> list[ReceivedMessage]:
        """The newest messages, oldest first."""
        if type(count) is not int or not 0 <= count <= _TAIL_MAX:
            raise InvalidArgument(f"{count!r:.40} messages; give a number from 0 to {_TAIL_MAX}")
        with self._home.said_to_be_stopped():
            return operations.last_messages(self._home.client_config, self.name, count)

    def tail(self, n: int = 10) -> Any:
        """Table of the newest messages: place, time, key, tags, value as text, properties."""
        rows = [
            (
                message.queue.broker_name,
                message.queue.queue_id,
                message.queue_offset,
                moment(message.store_timestamp),
                message.keys,
                message.tags,
                _value(message),
                user_properties(message),
            )
            for message in self.messages(n)
        ]
        columns = "broker", "queue", "offset", "stored", "key", "tags", "value", "properties"
        return table(columns, rows)

    def lag(self, group: str = "") -> Any:
        """Table of the groups that read this topic."""
        with self._home.said_to_be_stopped():
            return operations.lag_table(self._home.client_config, group, self.name)

    def stats(self) -> Any:
        """Table of the queues: first and next offset, messages, newest."""
        config = self._home.client_config
        with self._home.said_to_be_stopped(), operations.known_topic(config, self.name):
            found = operations.gather(config, lambda admin: figures.topic_figures(admin, self.name))
        rows = [
            (q.broker_name, q.queue_id, s.low, s.end, s.end - s.low, moment(s.newest_ms))
            for q, s in found.queues.items()
        ]
        return table(("broker", "queue", "first", "next", "messages", "newest"), rows)

    def describe(self) -> str:
        """Queues, groups and the last messages as text."""
        try:
            return display.topic_text(self._picture())
        except RmqError as error:
            return f"{self!r}: {error}"

    def _repr_html_(self) -> str:
        try:
            return display.topic_html(self._picture())
        except RmqError as error:
            return html_facts([(repr(self), str(error))])

    def _repr_pretty_(self, printer: Printer, cycle: bool) -> None:
        printer.text(repr(self) if cycle else self.describe())

    def _picture(self) -> display.TopicPicture:
        async def ask(admin: Admin) -> display.TopicPicture:
            found = await figures.topic_figures(admin, self.name)
            lags = await figures.group_lags(admin, topic=self.name)
            return display.TopicPicture(found, lags, messages)

        messages = self.messages(_SHOWN_MESSAGES)
        return operations.gather(self._home.client_config, ask)


def _value(message: ReceivedMessage) -> str:
    try:
        return body_text(message.body)[0]
    except RmqError as error:
        return f"({error})"
