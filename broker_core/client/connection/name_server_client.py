"""Requests to the name servers, with fail-over to the next one.

Answers are validated here (sizes, addresses, types), so that callers can trust them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from broker_core.client.connection.topic_queues import QUEUES_MAX, queue_count
from broker_core.codec.wire.bodies.route_data import (
    BrokerData,
    ClusterInfo,
    TopicList,
    TopicRoute,
    decode_cluster_info,
    decode_topic_list,
    decode_topic_route,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    MalformedJson,
    NameServersSilent,
    RemoteError,
    RequestTimeout,
    RmqError,
    TlsFailed,
    TopicNotExist,
    UnexpectedAnswer,
    explained,
)
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient, parse_address

T = TypeVar("T")

# Codes after which the next server is asked: this one is starting, stopping or overloaded.
_ASK_ANOTHER: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.GO_AWAY,
    }
)


# A server that does not know these is no name server.
_EVERY_KNOWS: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    }
)


class NameServerClient:
    """Prefers the server that answered last; starts with a random one."""

    def __init__(
        self, remoting: RemotingClient, addresses: Sequence[str], timeout_ms: int = 3_000
    ) -> None:
        self._remoting = remoting
        self.addresses = tuple(addresses)
        self._timeout_ms = timeout_ms
        self._current = random.randrange(len(self.addresses))

    async def route(self, topic: str) -> TopicRoute:
        """The route of `topic`. Raises `TopicNotExist` when no name server that answers has it."""
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        return await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, _checked_route)

    async def cluster_info(self) -> ClusterInfo:
        """Every broker and cluster."""
        return await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}, _checked_cluster_info)

    async def topic_list(self) -> TopicList:
        """Every topic, system topics included."""
        return await self._ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, _topics)

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic on every name server; raises the first failure at the end."""
        failure: RmqError | None = None
        for address in self.addresses:
            command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})
            try:
                answer = await self._remoting.request(address, command, self._timeout_ms)
                if answer.code != ResponseCode.SUCCESS:
                    raise RemoteError.for_code(answer.code, answer.remark)
            except RmqError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def ask(self, code: int, ext: dict[str, str]) -> RemotingCommand:
        """The answer of any one name server."""
        return await self._ask(code, ext, lambda answer: answer)

    async def _ask(self, code: int, ext: dict[str, str], read: Callable[[RemotingCommand], T]) -> T:
        said_no: RemoteError | None = None
        silent: RmqError | None = None
        first = self._current
        for step in range(len(self.addresses)):
            number = (first + step) % len(self.addresses)
            address = self.addresses[number]
            try:
                answer = await self._remoting.request(
                    address, RemotingCommand(code, dict(ext)), self._timeout_ms
                )
                if answer.code == ResponseCode.SUCCESS:
                    found = _read(answer, read, address)
                    self._current = number
                    return found
            except (ConnectionLost, RequestTimeout, UnexpectedAnswer) as error:
                silent = error
                continue
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and code in _EVERY_KNOWS:
                silent = _not_a_name_server(address)
                continue
            refusal = RemoteError.for_code(answer.code, answer.remark)
            if answer.code not in _ASK_ANOTHER:
                raise refusal
            # "No such topic" is more specific than "not ready".
            if said_no is None or isinstance(refusal, TopicNotExist):
                said_no = refusal
        if said_no is not None:
            raise said_no
        assert silent is not None
        if isinstance(silent, InvalidArgument):
            raise silent
        failure = NameServersSilent(
            f"none of the name servers {';'.join(self.addresses):.200} answered: {silent}"
        )
        failure.tls_failed = isinstance(silent, TlsFailed)
        raise failure from silent


def _not_a_name_server(address: str) -> InvalidArgument:
    return InvalidArgument(
        explained(
            f"{address} is a broker, not a name server: give the address of the name server, which"
            " usually listens on port 9876",
            "broker-given-as-name-server",
        )
    )


def _read(answer: RemotingCommand, read: Callable[[RemotingCommand], T], address: str) -> T:
    try:
        return read(answer)
    except (InvalidArgument, MalformedJson) as error:
        text = f"the answer of name server {address} is malformed: {error}"
        raise UnexpectedAnswer(text) from error


def _checked_route(answer: RemotingCommand) -> TopicRoute:
    route = decode_topic_route(answer.body)
    for broker in route.brokers:
        _check_addresses(broker)
    queues = queue_count(route)
    if queues > QUEUES_MAX:
        raise InvalidArgument(f"{queues} queues, at most {QUEUES_MAX}")
    return route


def _checked_cluster_info(answer: RemotingCommand) -> ClusterInfo:
    info = decode_cluster_info(answer.body)
    for broker in info.brokers.values():
        _check_addresses(broker)
    return info


def _check_addresses(broker: BrokerData) -> None:
    for address in broker.addresses.values():
        parse_address(address)


def _topics(answer: RemotingCommand) -> TopicList:
    return decode_topic_list(answer.body)
