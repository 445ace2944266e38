"""Streams the rows of one writer to a broker's staging area, a window of blocks at a time.

    rows ─► blocks of template records ─► window ─► broker ─► acknowledged
                                            ▲  │
                                            └──┘ lost answers: the same blocks again, in order

Blocks are numbered, and the broker knows one that it has: sending it again does no harm. Memory is
bounded by the window, whatever is written. On the broker's own machine the writer writes the file
itself (`stage_file.py`) and tells the broker how far it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from broker_core.client.client_instance import checked
from broker_core.client.stage_file import STAGING_ID, StageFile, open_stage_file
from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.json_fields import whole_number
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.sink_messages import BatchIdentity, StagedPart, encode_blocks, encode_ids
from broker_core.errors import (
    ConnectionLost,
    DiskFull,
    InvalidArgument,
    MessageTooLarge,
    RequestTimeout,
    RmqError,
    StagedDataRefused,
    SystemBusy,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.runtime.clock import Clock

BLOCK_SIZE: Final = 1 << 20
WINDOW_SIZE: Final = 8 << 20
# How much a writer that has the file itself writes before it asks for more room.
GROWTH_SIZE: Final = 32 << 20

_PLACEHOLDER: Final = {8: bytes(8), 20: bytes(20)}
# What does not mean that the block was refused.
_UNDECIDED: Final = (ConnectionLost, RequestTimeout, SystemBusy)

Answer = asyncio.Future[RemotingCommand]


class Requests(NamedTuple):
    """How a writer talks to its broker."""

    ask: Callable[[RemotingCommand, bool], Awaitable[RemotingCommand]]
    """(command, whether to repeat it until it is answered) -> the answer, which says success"""
    begin: Callable[[RemotingCommand], Awaitable[Answer]]
    """Returns when the command is written, behind all that were begun before it."""


class StagedAt(NamedTuple):
    """Sealed data of one writer, and where it waits. Plain values: it may travel anywhere."""

    broker_name: str
    staging_id: str
    record_count: int
    size: int
    checksum: int

    @property
    def part(self) -> StagedPart:
        """What its broker is told."""
        return StagedPart(*self[1:])


class StageWriter:
    """One writer of one batch on one broker. Made by `SinkClient.stage`."""

    def __init__(
        self,
        requests: Requests,
        clock: Clock,
        broker_name: str,
        identity: BatchIdentity,
        begun: RemotingCommand,
        *,
        is_near: bool,
        block_size: int,
        window_size: int,
        body_size_max: int,
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._block_size = min(block_size, body_size_max)
        self._body_size_max = body_size_max
        self._window_size = window_size
        self._index = 0
        self._size = 0
        # Sent and not acknowledged, in order: (command, its size, the answer to come)
        self._window: deque[tuple[RemotingCommand, int, Answer]] = deque()
        self._is_done = False
        self.broker_name = broker_name
        self.identity = identity
        self.record_count = 0
        self.retry_count = 0
        try:
            self.staging_id = begun.ext["stagingId"]
            self._born_host = bytes.fromhex(begun.ext["bornHost"])
            self._store_host = _PLACEHOLDER[int(begun.ext["storeHostSize"])]
        except (KeyError, ValueError):
            raise UnexpectedAnswer(f"STAGE_BEGIN of broker {broker_name}") from None
        if not STAGING_ID.fullmatch(self.staging_id):
            raise UnexpectedAnswer(f"STAGE_BEGIN of broker {broker_name}: stagingId is none")
        self._granted = 0
        self._file: StageFile | None = None
        # Only a broker on this machine can have made the file: another one names any it likes.
        if is_near and "root" in begun.ext:
            place = (begun.ext.get("storeId", ""), begun.ext.get("bootId", ""))
            self._file = open_stage_file(begun.ext["root"], self.staging_id, block_size, *place)

    @property
    def is_local(self) -> bool:
        """Whether this writer writes the broker's file itself."""
        return self._file is not None

    async def append(self, batch: ColumnBatch) -> None:
        """Stage the rows; hosts and the checksum are filled in here.

        Waits while the window is full. After an error nothing of this writer can be published.
        """
        if self._is_done:
            raise InvalidArgument("this writer is sealed or aborted")
        if batch.count == 0:
            return
        addressed = batch._replace(
            born_host=self._born_host,
            store_host=self._store_host,
            append_crc=True,
            born_timestamp=_born(batch.born_timestamp, self._clock.wall_ms()),
        )
        if self._file is not None:
            await self._write(self._file, addressed)
            return
        for rows, body in encode_blocks(addressed, self._block_size):
            if len(body) > self._body_size_max:
                raise MessageTooLarge(
                    f"a row of {len(body)} bytes does not fit into a frame of broker "
                    f"{self.broker_name}, which takes {self._body_size_max}"
                )
            while self._window and self._size + len(body) > self._window_size:
                await self._settle_first()
            ext = {"stagingId": self.staging_id, "index": str(self._index)}
            await self._send(RemotingCommand(RequestCode.STAGE_APPEND, ext, body), len(body))
            self._index += 1
            self.record_count += rows

    async def seal(self) -> StagedAt:
        """Everything is at the broker and survives its being killed; what to publish."""
        ext = {"stagingId": self.staging_id}
        file = self._file
        if file is not None:
            file.close()
            ext |= {"count": str(file.count), "size": str(file.size)}
            ext["checksum"] = str(file.checksum)
        while self._window:
            await self._settle_first()
        answer = await self._requests.ask(RemotingCommand(RequestCode.STAGE_SEAL, ext), True)
        self._is_done = True
        try:
            numbers = [whole_number(answer.ext[name], name, 0) for name in _SEAL_FIELDS]
        except (KeyError, InvalidArgument) as error:
            raise UnexpectedAnswer(f"STAGE_SEAL of broker {self.broker_name}: {error}") from None
        if numbers[0] != self.record_count:
            raise StagedDataRefused(
                ResponseCode.STAGING_REFUSED,
                f"broker {self.broker_name} has {numbers[0]} of {self.record_count} records",
            )
        return StagedAt(self.broker_name, self.staging_id, *numbers)

    async def abort(self) -> None:
        """Drop what was staged, as far as the broker can be reached; the rest expires."""
        self._is_done = True
        if self._file is not None:
            self._file.close()
        for _, _, answer in self._window:
            answer.cancel()
        if self._window:
            await asyncio.wait([answer for _, _, answer in self._window])
        self._window.clear()
        try:
            body = encode_ids([self.staging_id])
            command = RemotingCommand(RequestCode.STAGE_DROP, None, body)
            await self._requests.ask(command, False)
        except RmqError:
            # It expires at the broker by itself.
            return

    # Inside

    async def _write(self, file: StageFile, batch: ColumnBatch) -> None:
        """Into the broker's file; a little at a time, so that the client's other tasks go on."""
        try:
            for size in file.append(batch):
                if size > self._granted:
                    self._granted = size + GROWTH_SIZE
                    ext = {"stagingId": self.staging_id, "size": str(self._granted)}
                    command = RemotingCommand(RequestCode.STAGE_APPEND, ext)
                    await self._requests.ask(command, True)
        except OSError as error:
            raise DiskFull(f"cannot stage at broker {self.broker_name}: {error}") from error
        self.record_count += batch.count

    async def _send(self, command: RemotingCommand, size: int) -> None:
        try:
            answer = await self._requests.begin(command)
        except RmqError as error:
            answer = asyncio.get_running_loop().create_future()
            answer.set_exception(error)
        self._window.append((command, size, answer))
        self._size += size

    async def _settle_first(self) -> None:
        """Wait for the oldest block; send it again until its fate is known."""
        _, size, answer = self._window[0]
        await asyncio.wait((answer,))
        error = _error_of(answer)
        if error is None:
            self._window.popleft()
            self._size -= size
            return
        await self._collect()
        if not isinstance(error, _UNDECIDED):
            raise error
        blocks, self._size = list(self._window), 0
        self._window.clear()
        self.retry_count += len(blocks)
        for command, _, _ in blocks:
            # One after the other: a block must not overtake another on a new connection.
            await self._requests.ask(_again(command), True)

    async def _collect(self) -> None:
        """Let every block under way end; errors are seen here and judged by the oldest."""
        for _, _, answer in self._window:
            await asyncio.wait((answer,))
            answer.exception()


_SEAL_FIELDS: Final = ("count", "size", "checksum")


def _error_of(answer: Answer) -> BaseException | None:
    error = answer.exception()
    if error is not None:
        return error
    try:
        checked(answer.result())
    except RmqError as refusal:
        return refusal
    return None


def _again(command: RemotingCommand) -> RemotingCommand:
    return RemotingCommand(command.code, command.ext, command.body)


def _born(given: object, now_ms: int) -> object:
    return now_ms if type(given) is int and given == 0 else given
