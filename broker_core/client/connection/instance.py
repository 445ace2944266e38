"""`ClientInstance`: connections, routes and heartbeats that producers and consumers share.

Producers and consumers register their groups here. Heartbeats announce the groups to every broker
in the routes; requests from brokers (rebalance, reset, check) go to the group they name. Everything
runs on the event loop that `start` was called on.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_core.client.connection.broker_requests import BrokerRequests
from broker_core.client.connection.capabilities import BrokerCapabilities
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.group_registry import (
    ConsumerRegistration,
    GroupRegistry,
    ProducerRegistration,
)
from broker_core.client.connection.heartbeats import Heartbeats
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.connection.name_server_client import NameServerClient
from broker_core.client.connection.routes import RouteCache
from broker_core.client.connection.security import request_signer, tls_context
from broker_core.client.produce.reply_inbox import ReplyInbox
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, RemoteError, RequestTimeout
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.runtime.clock import Clock, SystemClock, sleep

# Time limit for unregistering at brokers on stop.
_UNREGISTER_MS: Final = 1_000

__all__ = ["ClientInstance", "ConsumerRegistration", "ProducerRegistration"]


class ClientInstance(Lifecycle):
    """`start` it before use and `stop` it at the end, or use it with `async with`."""

    def __init__(self, config: ClientConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self.client_id = config.client_id
        self.clock: Clock = clock or SystemClock()
        self.groups = GroupRegistry()
        self.requests = BrokerRequests(self.groups)
        self.replies = ReplyInbox()
        self.requests.set_handler(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self.replies.receive)
        self.remoting = RemotingClient(
            config.remoting,
            self.requests,
            tls_context(config),
            self.clock,
            request_signer(config, self.clock),
        )
        self.name_servers = NameServerClient(
            self.remoting, config.name_servers, config.request_timeout_ms
        )
        self.routes = RouteCache(self.name_servers, config.address_rewrite, self.clock)
        self.capabilities = BrokerCapabilities(self.remoting, config.request_timeout_ms)
        self.heartbeats = Heartbeats(self.remoting, self.routes, self.groups, config)
        self._poll: asyncio.Task[None] | None = None
        self._is_stopped = False

    @property
    def is_running(self) -> bool:
        """True between `start` and `stop`."""
        return self._poll is not None and not self._is_stopped

    async def start(self) -> None:
        """Start polling routes and sending heartbeats. Connections are opened on demand."""
        if self._is_stopped:
            raise ConnectionLost("a stopped client cannot be started again; create a new one")
        if self._poll is None:
            self._poll = asyncio.ensure_future(self._poll_routes())
            self.heartbeats.start()

    async def stop(self) -> None:
        """Unregister and close every connection. Pending requests fail."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.wait((self._poll,))
            await self.heartbeats.stop(_UNREGISTER_MS)
        await self.routes.close()
        await self.remoting.close()

    # Groups

    def add_producer(self, producer: ProducerRegistration | str) -> None:
        """Register a group and send a heartbeat soon."""
        if isinstance(producer, str):
            producer = ProducerRegistration(producer)
        self.groups.add_producer(producer)
        self.heartbeats.send_soon()

    async def remove_producer(self, group: str) -> None:
        """Unregister the group; failures are logged."""
        if self.groups.remove_producer(group):
            await self.heartbeats.unregister(producer_group=group, timeout_ms=_UNREGISTER_MS)

    def add_consumer(self, consumer: ConsumerRegistration) -> None:
        """As `add_producer`; `await send_heartbeats()` to be sure that brokers know the group."""
        self.groups.add_consumer(consumer)
        self.heartbeats.send_soon()

    async def remove_consumer(self, group: str) -> None:
        """Unregister the group, so that other members take over; failures are logged."""
        if self.groups.remove_consumer(group):
            await self.heartbeats.unregister(consumer_group=group, timeout_ms=_UNREGISTER_MS)

    async def send_heartbeats(self) -> int:
        """Send a heartbeat to every broker in the routes. Returns how many accepted it."""
        return await self.heartbeats.send()

    # Requests

    async def request_broker(
        self,
        broker_name: str,
        command: RemotingCommand,
        timeout_ms: float | None = None,
        broker_id: int = 0,
        or_any: bool = False,
    ) -> RemotingCommand:
        """Send a request to a member of a broker and return the answer, with any response code.

        With `or_any` another member is asked if the wanted one is not in the route or cannot be
        reached. Raises `BrokerNotExist`, `ConnectionLost` or `RequestTimeout`; the latter two
        also refresh the route in the background.
        """
        address = self.routes.broker_address(broker_name, broker_id, or_any)
        waited_ms = timeout_ms or self.config.request_timeout_ms
        try:
            return await self.remoting.request(address, command, waited_ms)
        except (ConnectionLost, RequestTimeout) as error:
            self.routes.refresh_broker_soon(broker_name)
            others = {*self.routes.brokers().get(broker_name, {}).values()} - {address}
            if not or_any or isinstance(error, RequestTimeout) or not others:
                raise
        # The member is down: fall back to another one without waiting for a new route.
        return await self.remoting.request(min(others), command, waited_ms)

    async def ask_broker(
        self,
        broker_name: str,
        command: RemotingCommand,
        timeout_ms: float | None = None,
        broker_id: int = 0,
        or_any: bool = False,
    ) -> RemotingCommand:
        """As `request_broker`; raises the error of any response code but success."""
        answer = await self.request_broker(broker_name, command, timeout_ms, broker_id, or_any)
        return checked(answer)

    async def _poll_routes(self) -> None:
        interval_s = self.config.route_poll_interval_ms / 1000
        while True:
            await sleep(interval_s)
            await self.routes.poll()


def checked(answer: RemotingCommand) -> RemotingCommand:
    """The answer itself if it succeeded; raises the error of its code otherwise."""
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError.for_code(answer.code, answer.remark)
    return answer
