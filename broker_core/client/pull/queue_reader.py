"""Pulls from one queue, from its master or from a slave.

Each answer suggests which member to ask next. If that one cannot be reached, the others are tried
at once, so that reads continue while a master is down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker_core.client.connection.capabilities import BrokerCapabilities
from broker_core.client.connection.routes import RouteCache
from broker_core.client.pull.request import PullRequest, bulk_pull_command, pull_command
from broker_core.client.pull.result import PullResult, parse_pull_answer
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    RequestTimeout,
    RmqError,
    ServiceNotAvailable,
)
from broker_core.protocol_codes import MASTER_ID, ResponseCode
from broker_core.remoting.client import RemotingClient

# Room for the header of an answer beside its records.
_HEADER_ROOM: Final = 64 << 10


class ReadDoors(NamedTuple):
    """The parts of a client that a reader uses."""

    remoting: RemotingClient
    routes: RouteCache
    capabilities: BrokerCapabilities


class QueueReader:
    """Chooses the member of the broker for each pull."""

    def __init__(
        self, doors: ReadDoors, queue: MessageQueue, group: str, subscription: SubscriptionData
    ) -> None:
        self.queue = queue
        self.group = group
        self.subscription = subscription
        self._doors = doors
        self._broker_id = MASTER_ID

    async def pull(self, request: PullRequest) -> PullResult:
        """One answer, with raw records. Raises the error of the last member tried."""
        return await self._from_any(request, is_bulk=False)

    async def pull_bulk(self, request: PullRequest) -> PullResult:
        """As `pull`, by BULK_PULL if the broker supports it and nothing is filtered."""
        return await self._from_any(request, is_bulk=self.subscription.matches_all)

    async def _from_any(self, request: PullRequest, *, is_bulk: bool) -> PullResult:
        members = await self._members()
        failure: RmqError | None = None
        for broker_id in _by_preference(members, self._broker_id):
            try:
                result = await self._from_member(members[broker_id], broker_id, request, is_bulk)
            except (ConnectionLost, RequestTimeout, ServiceNotAvailable) as error:
                failure = error
                self._doors.routes.refresh_soon(self.queue.topic)
            else:
                self._broker_id = result.suggested_broker_id
                return result
        self._broker_id = MASTER_ID
        assert failure is not None
        raise failure

    async def _members(self) -> dict[int, str]:
        name = self.queue.broker_name
        members = self._doors.routes.brokers().get(name)
        if not members:
            await self._doors.routes.route(self.queue.topic, refresh=True)
            members = self._doors.routes.brokers().get(name)
        if not members:
            text = f"no route has an address of broker {name!r:.100}"
            raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
        return dict(members)

    async def _from_member(
        self, address: str, broker_id: int, request: PullRequest, is_bulk: bool
    ) -> PullResult:
        remoting, capabilities = self._doors.remoting, self._doors.capabilities
        if is_bulk:
            known = await capabilities.of(address)
            if known.bulk_pull:
                frame_size = min(known.frame_size_max, remoting.limits.frame_size_max)
                size_max = min(request.size_max, frame_size - _HEADER_ROOM)
                command = bulk_pull_command(request, self.queue, self.group, size_max)
                answer = await remoting.request(address, command, request.timeout_ms)
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    result = parse_pull_answer(answer, request.offset)
                    return result._replace(from_master=broker_id == MASTER_ID, is_bulk=True)
                capabilities.forget(address)
        is_master = broker_id == MASTER_ID
        command = pull_command(
            request, self.queue, self.group, self.subscription, to_master=is_master
        )
        answer = await remoting.request(address, command, request.timeout_ms)
        return parse_pull_answer(answer, request.offset)._replace(from_master=is_master)


def _by_preference(members: dict[int, str], wanted: int) -> Iterator[int]:
    """The wanted id, the one after it, then the others from the master on."""
    first = [broker_id for broker_id in (wanted, wanted + 1) if broker_id in members]
    yield from first
    yield from (broker_id for broker_id in sorted(members) if broker_id not in first)
