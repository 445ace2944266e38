"""Client of the exactly-once sink: stage, seal, publish, abort, status.

Tasks stage parts of a batch at any brokers; the driver publishes the sealed parts. A publication
may be repeated until its outcome is known: the brokers do it once.
"""

from __future__ import annotations

import asyncio
import math
import re
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from broker_core.client.connection.backoff import Backoff, may_pass
from broker_core.client.connection.capabilities import Capabilities
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance, checked
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.sink.stage_writer import (
    BLOCK_SIZE,
    RENEWALS,
    WINDOW_SIZE,
    Answer,
    Requests,
    StageWriter,
    expiry_ms,
)
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.route_data import decode_kv_table
from broker_core.codec.wire.bodies.sink_messages import (
    COMPLETE,
    DECIDE,
    ENROL,
    PREPARE,
    RESERVE,
    BatchIdentity,
    OffsetRanges,
    Publication,
    PublishAnswer,
    SinkStatus,
    checked_name,
    encode_ids,
    encode_publication,
    parse_publish_answer,
    parse_status,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    BrokerNotExist,
    ConnectionLost,
    InvalidArgument,
    NoPermission,
    RemoteError,
    RequestNotSupported,
    RequestTimeout,
    RmqError,
    SinkBatchOld,
    SinkFenced,
    SystemBusy,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import MASTER_ID, RequestCode, ResponseCode
from broker_core.runtime.clock import sleep
from broker_core.runtime.peer_host import is_loopback_host

T = TypeVar("T")

PUBLISH_TIMEOUT_MS: Final = 120_000
RETRY_FOR_MS: Final = 60_000
_APPEND_TIMEOUT_MS: Final = 30_000
# Timeout of requests without retries.
_GLANCE_TIMEOUT_MS: Final = 2_000
# A short task needs no renewal.
_FIRST_RENEWAL_S: Final = 0.5
_RENEWAL_RETRY_S: Final = 5.0
_RENEWAL_MOST_S: Final = 300.0
# Room for ext fields beside a block in one frame.
_HEADER_ROOM: Final = 64 << 10

_COMPLETIONS_MAX: Final = 64

# Stored, but not acknowledged yet: a repeated request learns the outcome.
_UNSETTLED: Final = frozenset(
    {
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class PublishedOffsets(NamedTuple):
    """Offsets of a published batch."""

    is_repeat: bool
    """The batch was published before; the parts of this attempt are dropped."""
    batch: int
    offsets: dict[str, OffsetRanges]
    """Broker name -> topic -> queue id -> (first offset, offset after the last)."""


class Completions:
    """Batches on several brokers that this process has seen completed on all of them.

    Has the last one of each sink, for the most recently used sinks. The next batch does not ask
    about it again: otherwise a broker that was removed since then would block every later batch.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int, str]] = {}

    def note(self, sink: str, attempt: tuple[int, int, str]) -> None:
        """Every broker has published its parts of this attempt (batch, token, name)."""
        self._last.pop(sink, None)
        self._last[sink] = attempt
        while len(self._last) > _COMPLETIONS_MAX:
            del self._last[next(iter(self._last))]

    def has(self, sink: str, attempt: tuple[int, int, str]) -> bool:
        """Whether it is known to be complete; False: unknown."""
        return self._last.get(sink) == attempt


# A sink client lives for one batch, the client instance below it for the process.
_by_client: weakref.WeakKeyDictionary[ClientInstance, Completions] = weakref.WeakKeyDictionary()


def completions_of(client: ClientInstance) -> Completions:
    """Completions seen through this client."""
    return _by_client.setdefault(client, Completions())


class SinkClient(Lifecycle):
    """`start` before use and `stop` at the end, or `async with`.

    A `ClientInstance` is shared; from a `ClientConfig` the object creates its own. Requests are
    retried for `retry_for_ms` while a broker cannot be reached. With `local_staging=False` rows are
    sent over the network, even if the broker is on this machine.
    """

    def __init__(
        self,
        client: ClientInstance | ClientConfig,
        *,
        block_size: int = BLOCK_SIZE,
        window_size: int = WINDOW_SIZE,
        retry_for_ms: int = RETRY_FOR_MS,
        publish_timeout_ms: int = PUBLISH_TIMEOUT_MS,
        local_staging: bool = True,
    ) -> None:
        self._owns_client = isinstance(client, ClientConfig)
        self.client = ClientInstance(client) if isinstance(client, ClientConfig) else client
        self._block_size = block_size
        self._window_size = window_size
        self._retry_for_ms = retry_for_ms
        self._publish_timeout_ms = publish_timeout_ms
        self._local_staging = local_staging
        self._addresses: dict[str, str] = {}
        self._completions = completions_of(self.client)

    async def start(self) -> None:
        """Start the client; it connects on first use."""
        await self.client.start()

    async def stop(self) -> None:
        """Stop the client, unless it is shared."""
        if self._owns_client:
            await self.client.stop()

    async def is_supported(self, broker_name: str) -> bool:
        """Whether a broker supports the exactly-once sink."""
        return (await self._capabilities(broker_name)).sink

    async def supported_now(self, broker_names: Iterable[str]) -> dict[str, bool]:
        """`is_supported` of the brokers that answer at once, without retries."""

        async def supported(name: str) -> bool | None:
            try:
                address = await self._address(name)
                asking = self.client.capabilities.of(address)
                found = await asyncio.wait_for(asking, _GLANCE_TIMEOUT_MS / 1000)
            except (RmqError, asyncio.TimeoutError):
                return None
            return found.sink if self.client.capabilities.is_known(address) else None

        names = sorted(set(broker_names))
        pairs = zip(names, await _all(supported(name) for name in names), strict=True)
        return {name: found for name, found in pairs if found is not None}

    async def has_timers(self, broker_name: str) -> bool:
        """Whether a broker supports `deliverAt`: brokers of this project and RocketMQ 5."""
        if await self.is_supported(broker_name):
            return True
        command = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._ask(broker_name, command, True)
        version = decode_kv_table(answer.body).get("brokerVersionDesc", "")
        found = re.match(r"V(\d+)_", version)
        return found is not None and int(found[1]) >= 5

    async def masters(self, *, at_least_one: bool = False, retries: bool = True) -> tuple[str, ...]:
        """Names of all brokers that have a master now.

        `at_least_one` waits for the first one and raises `ConnectionLost` if there is none: name
        servers that were just started know no broker until they register again.
        """
        name_servers = self.client.name_servers

        async def attempt() -> tuple[str, ...]:
            brokers = (await name_servers.cluster_info()).brokers
            found = sorted(name for name, b in brokers.items() if MASTER_ID in b.addresses)
            if at_least_one and not found:
                where = ";".join(name_servers.addresses)
                raise ConnectionLost(
                    f"no broker is registered at the name servers {where}: start the brokers, or "
                    "try again if the name servers were just started. Brokers register every 30 "
                    "seconds"
                )
            return tuple(found)

        return await self._until_known("", attempt, retries)

    async def keep_staged(self, identity: BatchIdentity) -> None:
        """Until cancelled: tell all brokers that a task of this batch is at work.

        Otherwise a task that computes for long before its next row would let the parts of other
        tasks expire. Brokers that do not answer are asked again in the next round.
        """
        delay_s = _FIRST_RENEWAL_S
        while True:
            await sleep(delay_s)
            try:
                delay_s = await self._renew(identity)
            except RmqError:
                # No name server answers.
                delay_s = _RENEWAL_RETRY_S

    async def stage(self, identity: BatchIdentity, broker_name: str) -> StageWriter:
        """Begin a part of a batch at a broker.

        Raises `SinkFenced` if another run replaced this one, and `RequestNotSupported` if the
        broker does not support the sink.
        """
        capabilities = await self._require(broker_name)
        command = RemotingCommand(RequestCode.STAGE_BEGIN, _fields_of(identity))
        begun = await self._ask(broker_name, command, True)
        address = await self._address(broker_name)
        connection = await self.client.remoting.connect(address, _APPEND_TIMEOUT_MS)
        return StageWriter(
            Requests(partial(self._ask, broker_name), partial(self._begin, broker_name)),
            self.client.clock,
            broker_name,
            identity,
            begun,
            may_write_file=self._local_staging and is_loopback_host(connection.peer[0]),
            block_size=self._block_size,
            window_size=self._window_size,
            body_size_max=capabilities.frame_size_max - _HEADER_ROOM,
        )

    async def coordinator(self, sink: str, broker_names: Iterable[str]) -> str:
        """The coordinator of a sink: the broker that decided before, or the first of
        `broker_names`.

        Asks all of `broker_names`. Raises `BrokerNotExist` if the coordinator cannot be reached: no
        other broker knows which batch was published last.
        """
        return (await self._coordinator(sink, broker_names))[0]

    async def settle_coordinator(
        self,
        identity: BatchIdentity,
        broker_names: Iterable[str],
        *,
        others: Iterable[str] = (),
        expected: str = "",
    ) -> str:
        """`coordinator`, after all of these brokers have noted it durably.

        So none of them ever decides in its place. `others` have no rows of the batch: they are
        asked and notified if they answer at once. `expected` is the coordinator that the caller
        remembers. Raises `SinkBatchOld` if another broker has published its parts of the batch and
        the coordinator does not know the batch: then the other parts are unknown.
        """
        names = set(broker_names)
        seen = await self._glances(identity.sink, set(others) - names)
        name, said = await self._coordinator(identity.sink, names, seen, expected)
        self._refuse_lost_decision(identity, name, said)
        uninformed = [other for other in said if other != name and not said[other].coordinator]
        request = Publication(identity, phase=ENROL, others=(name,))
        await _all(self._publish(other, request) for other in uninformed if other in names)
        await _all(self._tell(other, request) for other in uninformed if other not in names)
        return name

    async def known_coordinator(self, sink: str, others: Iterable[str], expected: str = "") -> str:
        """The coordinator of a sink; empty if none is known.

        `others` are asked without retries, as in `settle_coordinator`.
        """
        seen = await self._glances(sink, set(others))
        if not expected and not any(s.is_coordinator or s.coordinator for s in seen.values()):
            return ""
        return (await self._coordinator(sink, (), seen, expected))[0]

    async def is_known(self, sink: str, broker_names: Iterable[str]) -> bool:
        """Whether one of these brokers knows a sink; asked without retries."""
        seen = await self._glances(sink, broker_names)
        return any(status.is_known for status in seen.values())

    async def publish(
        self, identity: BatchIdentity, parts: Sequence[StagedPart], coordinator: str | None = None
    ) -> PublishedOffsets:
        """Publish exactly these parts as batch `identity.batch`, or learn that it was published.

        `coordinator` may be omitted if all parts are on one broker. Retries until the outcome is
        known or `retry_for_ms` has passed; it is safe to call this again, with the same parts or
        with new ones.
        """
        by_broker: dict[str, list[StagedPart]] = defaultdict(list)
        for part in parts:
            by_broker[part.broker_name].append(part)
        if coordinator is None:
            if len(by_broker) != 1:
                known = ", ".join(sorted(by_broker)) or "none"
                raise InvalidArgument(f"name the coordinator: the parts are at {known}")
            [coordinator] = by_broker
        for name in {*by_broker, coordinator}:
            await self._require(name)
        own = tuple(by_broker.pop(coordinator, ()))
        if by_broker:
            return await self._publish_across(identity, coordinator, own, by_broker)
        answer = await self._publish(coordinator, Publication(identity, own))
        return await self._completed(coordinator, identity, answer)

    async def abort(self, parts: Iterable[StagedPart]) -> int:
        """Have brokers drop parts; returns how many were dropped.

        Parts of brokers that cannot be reached expire. Published parts stay visible.
        """
        by_broker: dict[str, list[str]] = defaultdict(list)
        for part in parts:
            by_broker[part.broker_name].append(part.staging_id)
        dropped = 0
        for name, ids in by_broker.items():
            command = RemotingCommand(RequestCode.STAGE_DROP, None, encode_ids(ids))
            try:
                answer = await self._ask(name, command, False)
            except RmqError:
                # The draft expires.
                continue
            dropped += int(answer.ext.get("dropped", "0"))
        return dropped

    async def status(self, sink: str, broker_name: str) -> SinkStatus:
        """State of a sink at a broker."""
        await self._require(broker_name)
        ext = {"sinkId": checked_name(sink, "sink")}
        answer = await self._ask(broker_name, RemotingCommand(RequestCode.SINK_STATUS, ext), True)
        try:
            return parse_status(answer.body)
        except InvalidArgument as error:
            raise UnexpectedAnswer(f"SINK_STATUS of broker {broker_name}: {error}") from None

    async def _renew(self, identity: BatchIdentity) -> float:
        """Renew once; returns when to do it again."""
        masters = await self.masters(retries=False)
        able = await self.supported_now(masters)
        names = [name for name, is_able in able.items() if is_able]
        found = await _all(self._renew_at(name, identity) for name in names)
        expiry_s = min((s for s in found if s is not None), default=math.inf)
        delay_s = min(expiry_s / RENEWALS, _RENEWAL_MOST_S)
        has_missed = None in found or len(able) < len(masters) or not masters
        return min(delay_s, _RENEWAL_RETRY_S) if has_missed else delay_s

    async def _renew_at(self, broker_name: str, identity: BatchIdentity) -> float | None:
        """After how long without work the broker drops drafts; None if it did not answer."""
        command = RemotingCommand(RequestCode.STAGE_RENEW, _fields_of(identity))
        try:
            answer = await self._ask(broker_name, command, False, _GLANCE_TIMEOUT_MS)
        except (RequestNotSupported, NoPermission):
            # A broker of an earlier version, or one where this account has no such sink.
            return math.inf
        except RmqError:
            return None
        return expiry_ms(answer) / 1000

    # Several brokers

    async def _coordinator(
        self,
        sink: str,
        broker_names: Iterable[str],
        seen: Mapping[str, SinkStatus] = MappingProxyType({}),
        expected: str = "",
    ) -> tuple[str, dict[str, SinkStatus]]:
        """Name of the coordinator, and the status of all brokers."""
        names = sorted(set(broker_names))
        found = await _all(self.status(sink, name) for name in names)
        said = {**seen, **dict(zip(names, found, strict=True))}
        known = {name for name, status in said.items() if status.is_coordinator}
        known |= {status.coordinator for status in said.values() if status.coordinator}
        if expected:
            known.add(expected)
        if len(known) > 1:
            raise InvalidArgument(
                f"sink {sink} was published by {' and '.join(sorted(known))} on their own: use a "
                "new sinkId"
            )
        if not known and not names:
            raise InvalidArgument("name the brokers that the sink writes to")
        # New sink: the first broker that has rows of the batch.
        name = next(iter(known)) if known else names[0]
        if name not in said:
            said[name] = await self._require_coordinator(sink, name)
        return name, said

    def _refuse_lost_decision(
        self, identity: BatchIdentity, name: str, said: Mapping[str, SinkStatus]
    ) -> None:
        if said[name].batch >= identity.batch:
            return
        ahead = sorted(other for other, status in said.items() if status.batch >= identity.batch)
        if ahead:
            raise SinkBatchOld(
                ResponseCode.SINK_BATCH_OLD,
                f"broker {', '.join(ahead)} has published its part of batch {identity.batch} of "
                f"sink {identity.sink}, and broker {name}, which decides, has only batch "
                f"{said[name].batch}: it lost the end of its log (a slave that lagged was promoted,"
                " or a backup restored), and the missing rows of the batch are unknown. Go on with "
                "a new sinkId, which repeats the batch",
            )

    async def _glances(self, sink: str, names: Iterable[str]) -> dict[str, SinkStatus]:
        asked = sorted(names)
        found = await _all(self._glance(sink, name) for name in asked)
        pairs = zip(asked, found, strict=True)
        return {name: status for name, status in pairs if status is not None}

    async def _glance(self, sink: str, broker_name: str) -> SinkStatus | None:
        """Status of a sink, without retries; None if there is no answer."""
        command = RemotingCommand(RequestCode.SINK_STATUS, {"sinkId": checked_name(sink, "sink")})
        try:
            answer = await self._ask(broker_name, command, False, _GLANCE_TIMEOUT_MS)
            return parse_status(answer.body)
        except RmqError:
            return None

    async def _tell(self, broker_name: str, publication: Publication) -> None:
        """Send a publication once and ignore a failure."""
        command = RemotingCommand(RequestCode.SINK_PUBLISH, None, encode_publication(publication))
        try:
            await self._ask(broker_name, command, False, _GLANCE_TIMEOUT_MS)
        except RmqError:
            # The broker is notified when it has rows of the sink.
            return

    async def _require_coordinator(self, sink: str, name: str) -> SinkStatus:
        try:
            return await self.status(sink, name)
        except (BrokerNotExist, ConnectionLost, RequestTimeout) as error:
            raise BrokerNotExist(
                ResponseCode.BROKER_NOT_EXIST,
                f"broker {name}, which decides about the batches of sink {sink}, cannot be reached:"
                f" start it again ({error}). Only that broker knows whether the last batch was "
                "published; if it is gone for good, use a new sinkId or checkpoint",
            ) from None

    async def _publish_across(
        self,
        identity: BatchIdentity,
        coordinator: str,
        own: tuple[StagedPart, ...],
        by_broker: Mapping[str, Sequence[StagedPart]],
    ) -> PublishedOffsets:
        """Reserve, prepare, decide, complete; a repeat completes the earlier attempt."""
        floor = 0
        for is_last in (False, True):
            request = Publication(identity, phase=RESERVE, token=floor)
            reserved = await self._publish(coordinator, request)
            if reserved.is_repeat:
                done = await self._completed(coordinator, identity, reserved)
                await self.abort([*own, *(part for parts in by_broker.values() for part in parts)])
                return done
            last = (reserved.batch, reserved.token, reserved.attempt)
            if not self._completions.has(identity.sink, last):
                # The driver of the batch before may have died before COMPLETE.
                await self._completed(coordinator, identity, reserved)
            try:
                await self._prepare(identity, by_broker, reserved)
                break
            except SinkFenced:
                # The coordinator may have lost its latest numbers with the end of its log.
                found = await _all(self.status(identity.sink, name) for name in by_broker)
                floor = max(status.prepared for status in found)
                if is_last or floor < reserved.reserved:
                    raise
        decision = Publication(
            identity,
            own,
            DECIDE,
            reserved.reserved,
            tuple(sorted(by_broker)),
            attempt=reserved.reserved_attempt,
        )
        decided = await self._publish(coordinator, decision)
        return await self._completed(coordinator, identity, decided)

    async def _prepare(
        self,
        identity: BatchIdentity,
        by_broker: Mapping[str, Sequence[StagedPart]],
        reserved: PublishAnswer,
    ) -> None:
        common = Publication(identity, (), PREPARE, reserved.reserved, decided=reserved.decided)
        common = common._replace(attempt=reserved.reserved_attempt)
        await _all(
            self._publish(name, common._replace(parts=tuple(parts)))
            for name, parts in by_broker.items()
        )

    async def _completed(
        self, coordinator: str, identity: BatchIdentity, answer: PublishAnswer
    ) -> PublishedOffsets:
        """Have every broker publish its parts of the batch of `answer`."""
        who = identity._replace(batch=max(answer.batch, 0))
        request = Publication(who, (), COMPLETE, answer.token, attempt=answer.attempt)
        answers = await _all(self._complete(name, request) for name in answer.others)
        if answer.others:
            attempt = (answer.batch, answer.token, answer.attempt)
            self._completions.note(identity.sink, attempt)
        offsets = {coordinator: answer.offsets}
        offsets |= {name: found.offsets for name, found in zip(answer.others, answers, strict=True)}
        return PublishedOffsets(answer.is_repeat, answer.batch, offsets)

    async def _complete(self, broker_name: str, request: Publication) -> PublishAnswer:
        try:
            return await self._publish(broker_name, request)
        except (BrokerNotExist, ConnectionLost, RequestTimeout) as error:
            who = request.identity
            text = (
                f"broker {broker_name} cannot be reached, and may lack its part of batch "
                f"{who.batch} of sink {who.sink}, which is published: start it again ({error}). If "
                "it is gone for good, use a new sinkId or checkpoint"
            )
            if isinstance(error, BrokerNotExist):
                raise BrokerNotExist(error.code, text) from error
            raise type(error)(text) from error

    async def _publish(self, broker_name: str, publication: Publication) -> PublishAnswer:
        command = RemotingCommand(RequestCode.SINK_PUBLISH, None, encode_publication(publication))
        answer = await self._ask(broker_name, command, True, self._publish_timeout_ms)
        try:
            return parse_publish_answer(answer.body)
        except InvalidArgument as error:
            raise UnexpectedAnswer(f"SINK_PUBLISH of broker {broker_name}: {error}") from None

    async def _require(self, broker_name: str) -> Capabilities:
        capabilities = await self._capabilities(broker_name)
        if not capabilities.sink:
            raise RequestNotSupported(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"broker {broker_name} cannot publish exactly once: it is not one of this project."
                " Use deliveryGuarantee=at_least_once with it",
            )
        return capabilities

    async def _capabilities(self, broker_name: str) -> Capabilities:
        async def attempt() -> Capabilities:
            address = await self._address(broker_name)
            found = await self.client.capabilities.of(address)
            if not found.sink and not self.client.capabilities.is_known(address):
                # Not a refusal: a starting broker does not know its capabilities yet.
                text = f"broker {broker_name} does not report its capabilities yet"
                raise SystemBusy(ResponseCode.SYSTEM_BUSY, text)
            return found

        return await self._until_known(broker_name, attempt, True)

    async def _address(self, broker_name: str) -> str:
        try:
            return self.client.routes.broker_address(broker_name)
        except BrokerNotExist:
            address = self._addresses.get(broker_name)
        if address is None:
            info = await self.client.name_servers.cluster_info()
            found = info.brokers.get(broker_name)
            master = found.addresses.get(MASTER_ID) if found is not None else None
            if master is None:
                text = f"broker {broker_name} has no master at the name servers"
                raise BrokerNotExist(ResponseCode.BROKER_NOT_EXIST, text)
            address = self._addresses[broker_name] = self.client.routes.rewritten(master)
        return address

    async def _begin(self, broker_name: str, command: RemotingCommand) -> Answer:
        """The command is written when this returns, so awaiting each call keeps the order."""
        address = await self._address(broker_name)
        connection = await self.client.remoting.connect(address, _APPEND_TIMEOUT_MS)
        if not connection.is_writable:
            await connection.writable(_APPEND_TIMEOUT_MS)
        return connection.begin_request(command, _APPEND_TIMEOUT_MS)

    async def _ask(
        self,
        broker_name: str,
        command: RemotingCommand,
        repeat: bool,
        timeout_ms: float = _APPEND_TIMEOUT_MS,
    ) -> RemotingCommand:
        """A successful answer. `repeat`: retry for `retry_for_ms`."""

        async def attempt() -> RemotingCommand:
            address = await self._address(broker_name)
            again = RemotingCommand(command.code, command.ext, command.body)
            return checked(await self.client.remoting.request(address, again, timeout_ms))

        return await self._until_known(broker_name, attempt, repeat)

    async def _until_known(
        self, broker_name: str, attempt: Callable[[], Awaitable[T]], repeat: bool
    ) -> T:
        clock, backoff = self.client.clock, Backoff()
        deadline = clock.monotonic() + self._retry_for_ms / 1000
        while True:
            try:
                return await attempt()
            except RmqError as error:
                may_come = _may_be_asked_again(error)
                if may_come or isinstance(error, ConnectionLost):
                    # The broker may have moved.
                    self._addresses.pop(broker_name, None)
                    self.client.routes.refresh_broker_soon(broker_name)
                if not repeat or not may_come or clock.monotonic() > deadline:
                    raise
            await backoff.wait()


def _fields_of(identity: BatchIdentity) -> dict[str, str]:
    return {
        "sinkId": checked_name(identity.sink, "sink"),
        "batchId": str(identity.batch),
        "runId": checked_name(identity.run, "run"),
        "lineage": identity.lineage,
        "once": "true" if identity.once else "false",
        "queryId": identity.query,
    }


async def _all(requests: Iterable[Awaitable[T]]) -> list[T]:
    """Wait until all have ended, then return the answers or raise the first error."""
    found = await asyncio.gather(*requests, return_exceptions=True)
    for item in found:
        if isinstance(item, BaseException):
            raise item
    return found  # type: ignore[return-value]


def _may_be_asked_again(error: RmqError) -> bool:
    """Requests of the sink are idempotent, so every transient error is retried.

    A broker that stops, changes its role or lacks slaves answers SYSTEM_ERROR, which is transient,
    too.
    """
    return may_pass(error) or (isinstance(error, RemoteError) and error.code in _UNSETTLED)
