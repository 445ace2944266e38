"""Streams one part of a batch to a broker's staging area, with a window of blocks in flight.

    rows ─► blocks of template records ─► window ─► broker ─► acknowledged
                                            ▲  │
                                            └──┘ lost answers: resend the same blocks, in order

Blocks are numbered and the broker deduplicates them, so resending is harmless. The window bounds
the memory. On the broker's machine the writer writes the staging file itself (`staging_file.py`)
and reserves room in it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from broker_core.client.connection.instance import checked
from broker_core.client.sink.staging_file import STAGING_ID, StagingFile, open_staging_file
from broker_core.codec.json.fields import whole_number
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.staged_block import RunningDigest, StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    BatchIdentity,
    encode_blocks,
    encode_ids,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    ConnectionLost,
    DiskFull,
    InvalidArgument,
    MessageTooLarge,
    RequestTimeout,
    RmqError,
    StagingRefused,
    SystemBusy,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode
from broker_core.runtime.clock import Clock

BLOCK_SIZE: Final = 1 << 20
WINDOW_SIZE: Final = 8 << 20
# Room that a writer of the staging file reserves at a time.
GROWTH_SIZE: Final = 32 << 20
# How often within the expiry a batch is renewed.
RENEWALS: Final = 8

_PLACEHOLDER: Final = {8: bytes(8), 20: bytes(20)}
# After these errors the block may have been accepted.
_UNDECIDED: Final = (ConnectionLost, RequestTimeout, SystemBusy)

Answer = asyncio.Future[RemotingCommand]


class Requests(NamedTuple):
    """Requests of a writer to its broker."""

    ask: Callable[[RemotingCommand, bool], Awaitable[RemotingCommand]]
    """(command, whether to retry it) -> the successful answer"""
    begin: Callable[[RemotingCommand], Awaitable[Answer]]
    """Returns when the command is written, in order."""


class StageWriter:
    """Writes one part of a batch to one broker. Created by `SinkClient.stage`."""

    def __init__(
        self,
        requests: Requests,
        clock: Clock,
        broker_name: str,
        identity: BatchIdentity,
        begun: RemotingCommand,
        *,
        may_write_file: bool,
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
        self._sent_digest = RunningDigest()
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
        # Writing to a file renews nothing at the broker: ask often enough, if it says how often.
        self._renew_s = expiry_ms(begun) / RENEWALS / 1000
        self._asked_at = clock.monotonic()
        self._file: StagingFile | None = None
        # A remote broker could name any file: accept the directory only over loopback.
        if may_write_file and "root" in begun.ext:
            place = (begun.ext.get("storeId", ""), begun.ext.get("bootId", ""))
            self._file = open_staging_file(begun.ext["root"], self.staging_id, block_size, *place)

    @property
    def is_local(self) -> bool:
        """Whether this writer writes the staging file itself."""
        return self._file is not None

    @property
    def digest(self) -> int:
        """Digest of the rows so far, as they were given; see `digest_rows`."""
        return self._sent_digest.value if self._file is None else self._file.digest

    async def append(self, batch: ColumnBatch) -> None:
        """Stage rows; hosts and checksums are filled in here.

        Waits while the window is full. After an error the part cannot be published.
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
        for rows, body in encode_blocks(addressed, self._block_size, self._sent_digest.sum):
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

    async def seal(self) -> StagedPart:
        """Returns the part to publish. It is complete and survives a kill of the broker."""
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
            count, size, checksum = (
                whole_number(answer.ext[name], name, 0) for name in _SEAL_FIELDS
            )
        except (KeyError, InvalidArgument) as error:
            raise UnexpectedAnswer(f"STAGE_SEAL of broker {self.broker_name}: {error}") from None
        if count != self.record_count:
            raise StagingRefused(
                f"broker {self.broker_name} has {count} of {self.record_count} records"
            )
        return StagedPart(self.staging_id, count, size, checksum, self.broker_name)

    async def abort(self) -> None:
        """Have the broker drop the draft; if it cannot be reached, the draft expires."""
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
            # The draft expires.
            return

    async def _write(self, file: StagingFile, batch: ColumnBatch) -> None:
        """Write to the staging file, block by block."""
        try:
            for size in file.append(batch):
                if size > self._granted:
                    await self._reserve(size)
                elif self._clock.monotonic() - self._asked_at >= self._renew_s:
                    await self._ask_for(self._granted, True)
        except OSError as error:
            raise DiskFull(f"cannot stage at broker {self.broker_name}: {error}") from error
        self.record_count += batch.count

    async def _reserve(self, size: int) -> None:
        """Reserve room for `size` bytes in the file, and more if the broker has it to give."""
        try:
            await self._ask_for(size + GROWTH_SIZE, False)
        except RmqError:
            # The share of a sink can be smaller than the room that is reserved in advance.
            await self._ask_for(size, True)

    async def _ask_for(self, size: int, repeat: bool) -> None:
        ext = {"stagingId": self.staging_id, "size": str(size)}
        await self._requests.ask(RemotingCommand(RequestCode.STAGE_APPEND, ext), repeat)
        self._granted = size
        self._asked_at = self._clock.monotonic()

    async def _send(self, command: RemotingCommand, size: int) -> None:
        try:
            answer = await self._requests.begin(command)
        except RmqError as error:
            answer = asyncio.get_running_loop().create_future()
            answer.set_exception(error)
        self._window.append((command, size, answer))
        self._size += size

    async def _settle_first(self) -> None:
        """Wait for the oldest block; resend until its outcome is known."""
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
            # One at a time: on a new connection no block may overtake another.
            await self._requests.ask(_again(command), True)

    async def _collect(self) -> None:
        """Wait for all blocks in flight; the error of the oldest decides."""
        for _, _, answer in self._window:
            await asyncio.wait((answer,))
            answer.exception()


def expiry_ms(answer: RemotingCommand) -> float:
    """After how long without work the broker drops drafts; infinite for brokers that do not say."""
    try:
        return whole_number(answer.ext["expiryMs"], "expiryMs", 1)
    except (KeyError, InvalidArgument):
        return math.inf


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
