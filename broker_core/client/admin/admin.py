"""Administration of a cluster: topics, groups, offsets, and messages by id or key.

Changes to a cluster go to all masters that the name servers list, requests about a queue to its
broker. Response codes other than success raise the errors of `broker_core.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker_core.client.admin import message_lookup, topic_creation
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance, checked
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.connection.topic_queues import QUEUES_MAX
from broker_core.client.pull.queue_offsets import QueueOffsets
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.bodies.group_config import GroupConfig, group_config_object
from broker_core.codec.wire.bodies.route_data import ClusterInfo, TopicRoute
from broker_core.codec.wire.bodies.topic_config import (
    PERM_MASK,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import group_name_problem, topic_name_problem
from broker_core.errors import BrokerNotExist, InvalidArgument
from broker_core.protocol_codes import MASTER_ID, RequestCode, ResponseCode


class Admin(QueueOffsets, Lifecycle):
    """Manages topics, groups, offsets and messages of a cluster.

    `start` before use and `stop` at the end, or `async with`.

    A `ClientInstance` is shared; from a `ClientConfig` the object creates its own.
    """

    def __init__(self, client: ClientInstance | ClientConfig) -> None:
        self._owns_client = isinstance(client, ClientConfig)
        super().__init__(ClientInstance(client) if isinstance(client, ClientConfig) else client)
        self._timeout_ms = self.client.config.request_timeout_ms

    async def start(self) -> None:
        """Start the client; connections are opened on demand."""
        await self.client.start()

    async def stop(self) -> None:
        """Stop the client unless it is shared."""
        if self._owns_client:
            await self.client.stop()

    # Cluster

    async def cluster_info(self) -> ClusterInfo:
        """Every broker and cluster that the name servers know."""
        return await self.client.name_servers.cluster_info()

    async def topics(self) -> tuple[str, ...]:
        """Every topic in order, system topics included."""
        found = await self.client.name_servers.topic_list()
        return tuple(sorted(found.topics))

    async def route(self, topic: str) -> TopicRoute:
        """The current route of a topic, not from the cache. Raises `TopicNotExist`."""
        return await self.client.name_servers.route(topic)

    # Topics

    async def create_topic(
        self,
        topic: str,
        *,
        queue_count: int = 8,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        cluster: str | None = None,
        broker_names: Sequence[str] | None = None,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        shown_within_ms: int = 10_000,
    ) -> None:
        """Create or change a topic on the masters of a cluster or of `broker_names`.

        Returns when the name servers show it, so that it can be used at once.
        """
        await self.create_topics(
            {topic: queue_count},
            read_queue_count=read_queue_count,
            write_queue_count=write_queue_count,
            perm=perm,
            cluster=cluster,
            broker_names=broker_names,
            order=order,
            attributes=attributes,
            shown_within_ms=shown_within_ms,
        )

    async def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        cluster: str | None = None,
        broker_names: Sequence[str] | None = None,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        shown_within_ms: int = 60_000,
    ) -> None:
        """Create or change many topics, each with its number of queues.

        Sends them in a few requests, or several requests at a time to brokers that do not know such
        lists (Apache's before 5.3). The other settings are those of all topics.
        """
        changes = {f"+{key}": value for key, value in (attributes or {}).items()}
        asked = []
        for name, count in topics.items():
            readable = count if read_queue_count is None else read_queue_count
            writable = count if write_queue_count is None else write_queue_count
            topic = TopicConfig(name, readable, writable, perm, order=order, attributes=changes)
            _check_topic(topic)
            asked.append(topic)
        masters = await self._masters(cluster, broker_names)
        await topic_creation.create_on(self.client, masters.values(), asked, self._timeout_ms)
        await topic_creation.until_shown(self.client, masters, asked, shown_within_ms)

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic on every master of the cluster, then on every name server."""
        masters = await self._masters(cluster, None)
        await self._tell_all(masters, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        await self.client.name_servers.delete_topic(topic)
        self.client.routes.forget(topic)

    # Groups

    async def create_group(
        self,
        group: GroupConfig | str,
        *,
        cluster: str | None = None,
        broker_names: Sequence[str] | None = None,
    ) -> None:
        """Create or change a consumer group on the masters of a cluster or of `broker_names`."""
        config = GroupConfig(group) if isinstance(group, str) else group
        _refuse(group_name_problem(config.name), config.name)
        body = emit_json(group_config_object(config))
        masters = await self._masters(cluster, broker_names)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._tell_all(masters, code, {}, body)

    async def delete_group(
        self, group: str, *, clean_offsets: bool = True, cluster: str | None = None
    ) -> None:
        """Delete a consumer group on every master, by default with its offsets."""
        ext = {"groupName": group, "cleanOffset": "true" if clean_offsets else "false"}
        masters = await self._masters(cluster, None)
        await self._tell_all(masters, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)

    # Messages

    async def view_message(self, offset_msg_id: str, topic: str = "") -> MessageRecord:
        """The stored message of an offset id, from the broker that the id names.

        Only brokers that the name servers list are asked. Raises `QueryNotFound`.
        """
        return await message_lookup.view_message(self.client, offset_msg_id, topic)

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        max_count: int = 32,
        begin_ms: int = 0,
        end_ms: int | None = None,
        is_unique_id: bool = False,
    ) -> list[MessageRecord]:
        """Messages with a key, or with a client's id (`msg_id`), oldest first."""
        queues = await self.client.routes.subscribe_queues(topic, refresh=True)
        return await message_lookup.query_messages(
            self.client, queues, topic, key, max_count, begin_ms, end_ms, is_unique_id
        )

    async def query_index(
        self, broker: str, topic: str, key: str, *, max_count: int = 32
    ) -> tuple[list[MessageRecord], bool]:
        """Messages of one broker with a key, and whether the list is complete."""
        return await message_lookup.query_index(self.client, broker, topic, key, max_count)

    # For the other modules of this folder

    async def ask(
        self,
        address: str,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout_ms: float | None = None,
    ) -> RemotingCommand:
        """Send a request to one server; raises the error of any code but success."""
        command = RemotingCommand(code, dict(ext or {}), body)
        waited = self._timeout_ms if timeout_ms is None else timeout_ms
        return checked(await self.client.remoting.request(address, command, waited))

    async def masters(
        self, cluster: str | None = None, broker_names: Sequence[str] | None = None
    ) -> dict[str, str]:
        """Broker name → address of its master, of a cluster or of `broker_names`."""
        return await self._masters(cluster, broker_names)

    async def members(self) -> list[tuple[str, str, int, str]]:
        """Cluster, broker name, broker id and address of every broker, in order."""
        info = await self.cluster_info()
        rewritten = self.client.routes.rewritten
        return sorted(
            (cluster, name, number, rewritten(address))
            for cluster, names in info.clusters.items()
            for name in names
            if name in info.brokers
            for number, address in info.brokers[name].addresses.items()
        )

    async def _masters(
        self, cluster: str | None, broker_names: Sequence[str] | None
    ) -> dict[str, str]:
        """Broker name → address of its master."""
        info = await self.cluster_info()
        names = broker_names
        if names is None:
            names = _names_in(info, cluster)
        masters = {}
        for name in names:
            address = info.brokers[name].addresses.get(MASTER_ID) if name in info.brokers else None
            if address is None:
                text = f"broker {name} has no master at the name servers"
                raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
            masters[name] = self.client.routes.rewritten(address)
        return masters

    async def _tell_all(
        self, masters: Mapping[str, str], code: int, ext: dict[str, str], body: bytes = b""
    ) -> None:
        for address in masters.values():
            command = RemotingCommand(code, dict(ext), body)
            checked(await self.client.remoting.request(address, command, self._timeout_ms))


def _names_in(info: ClusterInfo, cluster: str | None) -> Sequence[str]:
    known = f"the name servers know: {', '.join(sorted(info.clusters)) or 'none':.300}"
    if cluster is None:
        if len(info.clusters) != 1:
            raise InvalidArgument(f"name the cluster; {known}")
        [names] = info.clusters.values()
    elif cluster in info.clusters:
        names = info.clusters[cluster]
    else:
        raise InvalidArgument(f"no cluster {cluster!r:.100}; {known}")
    # Skip brokers whose master is down.
    alive = [n for n in names if n in info.brokers and MASTER_ID in info.brokers[n].addresses]
    if not alive:
        text = f"no broker of cluster {cluster or next(iter(info.clusters))} has a master"
        raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
    return alive


def _check_topic(topic: TopicConfig) -> None:
    _refuse(topic_name_problem(topic.name), topic.name)
    for count in (topic.read_queue_count, topic.write_queue_count):
        if type(count) is not int or not 0 <= count <= QUEUES_MAX:
            raise InvalidArgument(
                f"topic {topic.name}: {count!r:.40} queues; give a number from 0 to {QUEUES_MAX}"
            )
    if not 0 <= topic.perm <= PERM_MASK:
        raise InvalidArgument(f"perm {topic.perm}; 6 is read and write, 4 read, 2 write")


def _refuse(problem: str | None, name: str) -> None:
    if problem is not None:
        raise InvalidArgument(f"{problem}: {name!r:.140}")
