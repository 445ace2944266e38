"""Several brokers' sinks on simulated disks, and the real client flow on top without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from broker_core.client.connection.capabilities import Capabilities
from broker_core.client.sink.client import Completions, PublishedOffsets, SinkClient
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    BatchIdentity,
    Publication,
    PublishAnswer,
    SinkStatus,
    encode_publication,
    encode_publish_answer,
    parse_publication,
    parse_publish_answer,
)
from broker_core.errors import BrokerNotExist
from broker_core.protocol_codes import ResponseCode
from tests.broker.sink_store import Rows, SinkStore


class DirectClient(SinkClient):
    """The client's flow; requests are encoded, but no socket carries them."""

    def __init__(self, brokers: dict[str, SinkStore]) -> None:
        self._brokers = brokers
        self._completions = Completions()
        # Called before every request, which may raise instead of it.
        self.before: Callable[[str, Publication], object] = lambda name, publication: None

    async def _require(self, broker_name: str) -> Capabilities:
        if broker_name not in self._brokers:
            raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, "it is gone")
        return Capabilities(sink=True)

    async def status(self, sink: str, broker_name: str) -> SinkStatus:
        await self._require(broker_name)
        return self._brokers[broker_name].batches.status(sink)

    async def _glance(self, sink: str, broker_name: str) -> SinkStatus | None:
        try:
            return await self.status(sink, broker_name)
        except BrokerNotExist:
            return None

    async def _tell(self, broker_name: str, publication: Publication) -> None:
        await self._publish(broker_name, publication)

    async def _publish(self, broker_name: str, publication: Publication) -> PublishAnswer:
        self.before(broker_name, publication)
        asked = parse_publication(encode_publication(publication))
        answer = await self._brokers[broker_name].publisher.publish(asked)
        return parse_publish_answer(encode_publish_answer(answer))

    async def abort(self, staged: Iterable[StagedPart]) -> int:
        return sum(
            self._brokers[part.broker_name].publisher.abort([part.staging_id]) for part in staged
        )


class SinkCluster:
    """Brokers by name; the first coordinates."""

    def __init__(self, brokers: dict[str, SinkStore]) -> None:
        self.brokers = brokers
        self.client = DirectClient(brokers)

    def stage(self, who: BatchIdentity, rows: dict[str, Rows]) -> list[StagedPart]:
        """Broker name -> queue -> rows, staged."""
        return [
            self.brokers[name].stage(who, found)._replace(broker_name=name)
            for name, found in rows.items()
        ]

    def publish(self, who: BatchIdentity, staged: list[StagedPart]) -> PublishedOffsets:
        """The client's whole flow."""

        async def flow() -> PublishedOffsets:
            used = {part.broker_name for part in staged}
            coordinator = await self.client.settle_coordinator(who, used, others=self.brokers)
            return await self.client.publish(who, staged, coordinator)

        return asyncio.run(flow())

    def write(self, who: BatchIdentity, rows: dict[str, Rows]) -> PublishedOffsets:
        """Stage and publish."""
        return self.publish(who, self.stage(who, rows))

    def bodies(self) -> list[bytes]:
        """Everything visible anywhere."""
        return [body for broker in self.brokers.values() for body in broker.all_bodies()]

    def killed(self, *names: str, **changes: Any) -> SinkCluster:
        """These die, or all of them."""
        brokers = {
            name: broker.killed(**changes) if not names or name in names else broker
            for name, broker in self.brokers.items()
        }
        return SinkCluster(brokers)
