"""Which extensions of ours a broker supports: asked once per address, then cached."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from broker_core.codec.json.fields import whole_number
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, UnexpectedAnswer
from broker_core.protocol_codes import RequestCode, ResponseCode, RunAnswer
from broker_core.remoting.client import RemotingClient

_FRAME_SIZE_MIN: Final = 64 << 10
_FRAME_SIZE_MAX: Final = 1 << 30
_ADDRESSES_MAX: Final = 10_000


class Capabilities(NamedTuple):
    """The answer of one broker. Apache's brokers support none of it."""

    bulk_pull: bool = False
    bulk_send: bool = False
    store_id: str = ""
    epoch: str = ""
    frame_size_max: int = 16 << 20
    sink: bool = False
    """Supports the exactly-once sink."""
    local_reads: bool = False
    """Runs on this host and offers its files for reading."""
    topic_ends: bool = False
    """Answers TOPIC_ENDS: the durable end of every queue of a topic."""
    send_once: bool = False
    """Answers SEND_ONCE: stores a message unless its topic has one with the same id."""
    run: str = ""
    """The current run of the log; only set by `ask`."""
    has_run: bool | None = None
    """Whether the log contains the run given to `ask`; None if the broker does not know runs."""
    is_unsure: bool = False
    """The broker cannot tell: a slave, or a master that may show less than its slave did."""


NO_CAPABILITIES: Final = Capabilities()


class BrokerCapabilities:
    """The cache, by address."""

    def __init__(self, remoting: RemotingClient, timeout_ms: float) -> None:
        self._remoting = remoting
        self._timeout_ms = timeout_ms
        self._known: dict[str, Capabilities] = {}
        self._asking: dict[str, asyncio.Task[Capabilities]] = {}

    async def of(self, address: str) -> Capabilities:
        """The cached answer, or a new one. Raises when the broker cannot be reached."""
        known = self._known.get(address)
        if known is not None:
            return known
        asking = self._asking.get(address)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(address))
            self._asking[address] = asking
            asking.add_done_callback(lambda done: self._asked(address, done))
        # Not cancelled with this caller: others may wait for the same answer.
        await asyncio.wait((asking,))
        return asking.result()

    async def ask(self, address: str, run: str = "") -> Capabilities:
        """Ask again, bypassing the cache, and whether the log contains `run`."""
        self.forget(address)
        return await self._ask(address, run)

    def is_known(self, address: str) -> bool:
        """Whether the answer is cached; that of a busy broker is not."""
        return address in self._known

    def forget(self, address: str) -> None:
        """Drop the cached answer: another broker may answer at this address."""
        self._known.pop(address, None)

    async def _ask(self, address: str, run: str | None = None) -> Capabilities:
        ext = {} if run is None else {"run": run}
        command = RemotingCommand(RequestCode.CAPABILITIES, ext)
        answer = await self._remoting.request(address, command, self._timeout_ms)
        if answer.code == ResponseCode.SUCCESS:
            known = _parse(answer)
        elif answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            known = NO_CAPABILITIES
        else:
            # Busy or starting: use plain requests for now and ask again next time.
            return NO_CAPABILITIES
        if len(self._known) >= _ADDRESSES_MAX:
            self._known.clear()
        # The run changes over time and is not cached.
        self._known[address] = known._replace(run="", has_run=None, is_unsure=False)
        return known

    def _asked(self, address: str, asking: asyncio.Task[Capabilities]) -> None:
        del self._asking[address]
        # Marks the exception as retrieved.
        if not asking.cancelled():
            asking.exception()


def _parse(answer: RemotingCommand) -> Capabilities:
    ext = answer.ext
    try:
        frame_size = whole_number(
            ext.get("frameSizeMax", str(NO_CAPABILITIES.frame_size_max)),
            "frameSizeMax",
            _FRAME_SIZE_MIN,
            _FRAME_SIZE_MAX,
        )
    except InvalidArgument as error:
        raise UnexpectedAnswer(f"the capabilities of a broker: {error}") from None
    return Capabilities(
        ext.get("bulkPull") == "1",
        ext.get("bulkSend") == "1",
        ext.get("storeId", ""),
        ext.get("epoch", ""),
        frame_size,
        ext.get("sink") == "1",
        local_reads=ext.get("localReads") == "1",
        topic_ends=ext.get("topicEnds") == "1",
        send_once=ext.get("sendOnce") == "1",
        run=ext.get("run", ""),
        has_run={RunAnswer.HAS.value: True, RunAnswer.LACKS.value: False}.get(
            ext.get("hasRun", "")
        ),
        is_unsure=ext.get("hasRun") == RunAnswer.UNSURE.value,
    )
