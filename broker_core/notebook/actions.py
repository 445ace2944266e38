"""`ClusterActions`: what notebooks and scripts do with any cluster, given its name servers.

The client is imported on first use, so that starting an embedded broker stays cheap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument, NameServersSilent

if TYPE_CHECKING:
    from broker_core.client.connection.config import ClientConfig
    from broker_core.client.pull.received_message import ReceivedMessage
    from broker_core.notebook.topic import Topic


class _Printer(Protocol):
    """IPython's pretty printer."""

    def text(self, text: str) -> None: ...


class ClusterActions:
    """Shared by `EmbeddedBroker`, `EmbeddedCluster` and `Cluster`."""

    before_options: ClassVar[list[Callable[[], None]]] = []
    """Called when options for Spark are asked for; the connector checks Spark's Python here."""

    before_start: ClassVar[list[Callable[[], None]]] = []
    """Called when an `EmbeddedBroker` is started or shared again; the connector checks the Python
    of a Spark session that is there already."""

    @property
    def name_server(self) -> str:
        """`host:port` of the name servers."""
        raise NotImplementedError

    @property
    def client_config(self) -> ClientConfig:
        """The configuration of a client of this cluster."""
        from broker_core.client.blocking.face import client_config

        return client_config(self.name_server)

    @property
    def options(self) -> dict[str, str]:
        """For `.options(**…)` of a reader or writer."""
        for check in self.before_options:
            check()
        return {"rmq.namesrv.addr": self.name_server}

    # Messages

    def create_topic(self, name: str, queue_count: int = 4) -> None:
        """Create a topic, or change the number of its queues."""
        from broker_core.notebook import operations

        with self.said_to_be_stopped():
            config = self.client_config
            with operations.known_topic(config, name):
                operations.gather(
                    config, lambda admin: admin.create_topic(name, queue_count=queue_count)
                )

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create many topics, each with its number of queues, in few requests."""
        from broker_core.notebook import operations
        from broker_core.notebook.topic_counts import topic_counts

        asked = topic_counts(topics)
        with self.said_to_be_stopped():
            operations.gather(self.client_config, lambda admin: admin.create_topics(asked))

    def produce(
        self,
        topic: str,
        messages: Any,
        *,
        tags: str = "",
        keys: str = "",
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay_ms: int | None = None,
    ) -> int:
        """Send messages evenly over the queues, wait until they are stored, return their number.

        `messages` is a list or another iterable of texts (UTF-8), bytes and dictionaries (JSON), or
        a pandas, Arrow or polars frame. A frame has a column `value`, or each of its rows becomes
        JSON; its columns `key`, `tags`, `properties`, `sharding_key`, `delay_level`, `delay_ms` and
        `deliver_at_ms` become fields of the messages. A dictionary with `value` and no other keys
        than these is such a row, too. The keyword arguments apply to messages without their own.
        """
        from broker_core.notebook import operations
        from broker_core.notebook.message_rows import SharedFields

        if properties is not None and not isinstance(properties, Mapping):
            raise InvalidArgument(f"properties={properties!r:.80} is no dictionary of texts")
        shared = SharedFields(topic, tags, keys, dict(properties or {}), delay_level, delay_ms)
        with self.said_to_be_stopped():
            return operations.produce(self.client_config, messages, shared)

    def consume(self, topic: str) -> list[ReceivedMessage]:
        """Every message of a topic, queue by queue."""
        from broker_core.notebook import operations

        with self.said_to_be_stopped():
            return operations.consume(self.client_config, topic)

    def topic(self, name: str) -> Topic:
        """One topic, for its messages and figures. It need not exist yet."""
        from broker_core.notebook.topic import Topic

        return Topic(self, name)

    # Tables

    def topics(self, *, system: bool = False) -> Any:
        """Table of topics: queues, messages, messages per second in the last minute, newest."""
        from broker_core.notebook import operations

        with self.said_to_be_stopped():
            return operations.topic_table(self.client_config, system=system)

    def lag(self, group: str = "", topic: str = "") -> Any:
        """Table of consumer groups, or of one: committed offset and lag in each queue."""
        from broker_core.notebook import operations

        with self.said_to_be_stopped():
            return operations.lag_table(self.client_config, group, topic)

    def stats(self) -> Any:
        """Table of everything that the brokers report about themselves."""
        from broker_core.notebook import operations

        with self.said_to_be_stopped():
            return operations.stats_table(self.client_config)

    # Display

    def describe(self) -> str:
        """Addresses, topics and groups as text."""
        from broker_core.notebook import operations

        config = self._reachable()
        if config is None:
            return repr(self)
        return operations.picture_text(config, repr(self).strip("<>"))

    def _repr_html_(self) -> str | None:
        from broker_core.notebook import operations

        config = self._reachable()
        # The plain text says that the cluster does not run.
        if config is None:
            return None
        return operations.picture_html(config, repr(self).strip("<>"))

    @contextlib.contextmanager
    def said_to_be_stopped(self) -> Iterator[None]:
        """Name servers that this object has stopped are silent for a reason that it knows."""
        try:
            yield
        except NameServersSilent:
            if getattr(self, "is_running", True):
                raise
            raise NameServersSilent(f"{repr(self).strip('<>')}: start() it first") from None

    def _reachable(self) -> ClientConfig | None:
        """None when this object has started a cluster that does not run."""
        try:
            return self.client_config if getattr(self, "is_running", True) else None
        except EmbeddedBrokerFailed:
            return None

    def _repr_pretty_(self, printer: _Printer, cycle: bool) -> None:
        printer.text(repr(self) if cycle else self.describe())
