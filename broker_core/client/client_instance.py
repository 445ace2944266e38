"""One client of a cluster: its connections, routes and heartbeats, shared by all built on it.

Producers and consumers register here as parties. The instance tells every broker in the routes
about them, and hands requests that brokers send (rebalance, reset, check) to the party meant.
Everything runs on the event loop that `start` was called on.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_core.client.broker_capabilities import BrokerCapabilities
from broker_core.client.broker_requests import BrokerRequests
from broker_core.client.client_config import ClientConfig
from broker_core.client.client_security import request_signer, tls_context
from broker_core.client.heartbeats import Heartbeats
from broker_core.client.name_server_client import NameServerClient
from broker_core.client.parties import ConsumerRegistration, Parties, ProducerRegistration
from broker_core.client.reply_inbox import ReplyInbox
from broker_core.client.route_cache import RouteCache
from broker_core.client.started_part import StartedPart
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, RemoteError, RequestTimeout
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.runtime.clock import Clock, SystemClock

# How long brokers that do not answer may hold up a stop.
_FAREWELL_MS: Final = 1_000

__all__ = ["ClientInstance", "ConsumerRegistration", "ProducerRegistration"]


class ClientInstance(StartedPart):
    """`start` it before use and `stop` it at the end, or use it with `async with`."""

    def __init__(self, config: ClientConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self.client_id = config.client_id
        self.clock: Clock = clock or SystemClock()
        self.parties = Parties()
        self.requests = BrokerRequests(self.parties)
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
        self.heartbeats = Heartbeats(self.remoting, self.routes, self.parties, config)
        self._poll: asyncio.Task[None] | None = None
        self._is_stopped = False

    @property
    def is_running(self) -> bool:
        """Between `start` and `stop`."""
        return self._poll is not None and not self._is_stopped

    async def start(self) -> None:
        """Begin to poll routes and send heartbeats. Nothing is connected before it is needed."""
        if self._is_stopped:
            raise ConnectionLost("a stopped client does not start again; make a new one")
        if self._poll is None:
            self._poll = asyncio.ensure_future(self._poll_routes())
            self.heartbeats.start()

    async def stop(self) -> None:
        """Tell the brokers, then close every connection. Requests that wait fail."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.wait((self._poll,))
            await self.heartbeats.stop(_FAREWELL_MS)
        await self.routes.close()
        await self.remoting.close()

    # Parties

    def add_producer(self, producer: ProducerRegistration | str) -> None:
        """Brokers learn of the group with the next heartbeat, which is sent at once."""
        if isinstance(producer, str):
            producer = ProducerRegistration(producer)
        self.parties.add_producer(producer)
        self.heartbeats.send_soon()

    async def remove_producer(self, group: str) -> None:
        """Tell the brokers that the group is gone from here; failures are logged."""
        if self.parties.remove_producer(group):
            await self.heartbeats.unregister(producer_group=group, timeout_ms=_FAREWELL_MS)

    def add_consumer(self, consumer: ConsumerRegistration) -> None:
        """As `add_producer`; `await send_heartbeats()` to be sure that brokers know of it."""
        self.parties.add_consumer(consumer)
        self.heartbeats.send_soon()

    async def remove_consumer(self, group: str) -> None:
        """Tell the brokers, which makes the other members take over; failures are logged."""
        if self.parties.remove_consumer(group):
            await self.heartbeats.unregister(consumer_group=group, timeout_ms=_FAREWELL_MS)

    async def send_heartbeats(self) -> int:
        """Tell every broker in the routes who is here; the number of those that answered."""
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
        """Ask a member of a broker and wait for the answer, whatever its code.

        With `or_any` another member is asked when the wanted one is not in the route, or gone.
        Raises `BrokerNotExist`, `ConnectionLost` or `RequestTimeout`; after the latter two the
        address is asked for again in the background, for it may have changed.
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
        # Nobody is there: what may be asked anywhere need not wait until the route says so.
        return await self.remoting.request(min(others), command, waited_ms)

    async def ask_broker(
        self,
        broker_name: str,
        command: RemotingCommand,
        timeout_ms: float | None = None,
        broker_id: int = 0,
        or_any: bool = False,
    ) -> RemotingCommand:
        """`request_broker`, raising the error that any code but success stands for."""
        answer = await self.request_broker(broker_name, command, timeout_ms, broker_id, or_any)
        return checked(answer)

    async def _poll_routes(self) -> None:
        interval_s = self.config.route_poll_interval_ms / 1000
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        while True:
            await asyncio.wait((never,), timeout=interval_s)
            await self.routes.poll()


def checked(answer: RemotingCommand) -> RemotingCommand:
    """The answer if it says success; raises what its code stands for otherwise."""
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError.for_code(answer.code, answer.remark)
    return answer
