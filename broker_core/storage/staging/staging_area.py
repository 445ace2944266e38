"""Drafts: parts of batches that are not published yet, each in a file with an unguessable name.

    staging/{id}   block after block (`staged_block.py`), then bytes that an earlier draft left in
                   a reused file (`staging_file_reuse.py`)

    begin ─► append or grow ─► seal ─► claim ─► recycle
                 └───────────────┴─► drop, by an abort or when the batch expires

Readers do not see drafts. Files are not synced: they survive a kill of the process, and after a
power cut the checks below refuse them. So a published batch is synced once, not twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum

from broker_core.codec.native import encode_batch, measure_batch
from broker_core.codec.records.column_batch import TEMPLATE, ColumnBatch
from broker_core.codec.records.staged_block import (
    HEAD_SIZE,
    StagedPart,
    encode_head,
    encode_table,
    join_heads,
)
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity
from broker_core.errors import (
    DiskFailed,
    DiskFull,
    InvalidArgument,
    StagingRefused,
    StoreClosed,
    StoreUnusable,
)
from broker_core.runtime.clock import Clock
from broker_core.runtime.worker import InlineWorker, Worker
from broker_core.storage.files.file_system import FileSystem, StoreFile
from broker_core.storage.log.append_group import checked_runs
from broker_core.storage.log.commit_log import RecordRun, TemplateRun
from broker_core.storage.staging.staged_run import NOTHING_READ, ReadSoFar, StagedRun, staged_runs
from broker_core.storage.staging.staging_file_reuse import StagingFileReuse, size_of_regular

STAGING_DIR = "staging"
# Larger files are removed by the worker: unlinking takes time for every megabyte.
UNLINK_INLINE_MAX = 256 << 10
ID_BYTES = 16
# The last bytes of an id tell, after a restart, which run of which sink has staged it.
RUN_TAG_BYTES = 4
# Spare files take at most an eighth of the staging limit.
SPARE_SHARE = 8
# Batches up to this size are read into memory at once when they are published.
READ_SIZE_MAX = 2 << 20
# A block is read in one piece. Limit for blocks that a client wrote into the file itself.
BLOCK_SIZE_MAX = 64 << 20

_ID = re.compile(r"[0-9a-f]{32}")


def encode_template(batch: ColumnBatch) -> TemplateRun:
    """The batch as records without log position, queue offset and store time."""
    size, _ = measure_batch(batch)
    records = bytearray(size + 8)
    ordinals = memoryview(array("q", bytes(8 * len(batch.queues))))
    encode_batch(batch, 0, ordinals, 0, records, 0, len(records), TEMPLATE)
    return TemplateRun(batch.queues, memoryview(records)[:size])


class DraftState(Enum):
    """Stage in the life of a draft."""

    OPEN = "being written"
    SEALED = "complete, may be published"
    CLAIMED = "in the log, not durable there yet"
    DROPPED = "to be removed"


class Lease:
    """Time of the last work on a batch. All drafts of the batch share it and expire together."""

    __slots__ = ("renewed",)

    def __init__(self, now: float) -> None:
        self.renewed = now


class Draft:
    """Staged data under one id, from `begin` until its file is removed or reused.

    The only record of a draft: the area manages the file, the sink fills in the writer's side.
    """

    __slots__ = (
        "block_checksums", "checksum", "disk_size", "file", "file_size", "identity", "is_verified",
        "lease", "part", "record_count", "size", "state", "topics",
    )  # fmt: skip

    def __init__(
        self, file_size: int, lease: Lease, state: DraftState, identity: BatchIdentity | None = None
    ) -> None:
        self.state = state
        self.lease = lease
        # Open while blocks are written.
        self.file: StoreFile | None = None
        # Size when the draft began: a reused file starts with the bytes of an earlier draft.
        self.file_size = self.disk_size = file_size
        # Bytes of all blocks so far, or the size that a client has reserved.
        self.size = 0
        self.record_count = self.checksum = 0
        # Set when it is sealed.
        self.part: StagedPart | None = None
        # Batch and run that stage it. None: unknown since a restart, prepared, or dropped.
        self.identity = identity
        # Topics of its records, as far as they are known.
        self.topics: set[str] = set()
        # One per block that was sent, to recognize a block that is sent again.
        self.block_checksums = array("L")
        # Every record was checked when it arrived.
        self.is_verified = False

    def resize(self, size: int) -> None:
        """Set `size`, and with it the bytes on disk."""
        self.size = size
        self.disk_size = max(size, self.file_size)

    def disown(self) -> None:
        """Remove the writer's identity, as for a draft found after a restart."""
        self.identity = None
        self.is_verified = False
        self.topics.clear()

    def close(self) -> None:
        """Close the file, if it is open."""
        if self.file is not None:
            self.file.close()
            self.file = None


class StagingArea:
    """The only owner of drafts. Owner thread only, except where stated."""

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        size_max: int,
        expiry_ms: int,
        worker: Worker | None = None,
        block_size_max: int = BLOCK_SIZE_MAX,
    ) -> None:
        """`worker` removes large files, which takes time."""
        self._block_size_max = block_size_max
        self._worker = worker or InlineWorker()
        self._file_system = file_system
        self._clock = clock
        self._size_max = size_max
        self._expiry_ms = expiry_ms
        self._drafts: dict[str, Draft] = {}
        # Ids of prepared parts, which do not expire.
        self._kept: set[str] = set()
        self._closed = False
        self._on_growth: Callable[[int], object] | None = None
        self._spares = StagingFileReuse(
            file_system, STAGING_DIR, clock, self._worker, size_max // SPARE_SHARE
        )
        for name in file_system.list(STAGING_DIR):
            if not _ID.fullmatch(name):
                # Not a staging file: neither counted nor removed.
                continue
            size = size_of_regular(file_system, f"{STAGING_DIR}/{name}")
            if size is not None:
                lease = Lease(clock.monotonic())
                self._drafts[name] = Draft(size, lease, DraftState.SEALED)

    def report_growth(self, callback: Callable[[int], object]) -> None:
        """Call `callback` with the total of staged bytes whenever it grows."""
        self._on_growth = callback

    @property
    def size(self) -> int:
        """Bytes on disk, without spare files."""
        return sum([draft.disk_size for draft in self._drafts.values()])

    @property
    def size_max(self) -> int:
        """Limit of `size`."""
        return self._size_max

    @property
    def has_dropped(self) -> bool:
        """Whether `size` counts files of dropped drafts, which are still to be removed."""
        return any(draft.state is DraftState.DROPPED for draft in self._drafts.values())

    @property
    def expiry_ms(self) -> float:
        """After how long without work the drafts of a batch are dropped."""
        return self._expiry_ms

    def drafts(self) -> Iterator[tuple[str, BatchIdentity, Draft]]:
        """Drafts whose writer is known, with their ids."""
        for staging_id, draft in self._drafts.items():
            if draft.identity is not None:
                yield staging_id, draft.identity, draft

    def found_at_start(self, sink: str, runs: Iterable[str]) -> list[str]:
        """Ids of drafts of these runs that an earlier process has left, without prepared ones."""
        tags = tuple(run_tag(sink, run) for run in runs)
        return [
            staging_id
            for staging_id, draft in self._drafts.items()
            if draft.identity is None
            and _is_live(draft)
            and staging_id not in self._kept
            and staging_id.endswith(tags)
        ]

    def find(self, staging_id: str) -> Draft | None:
        """A draft in any state."""
        return self._drafts.get(staging_id)

    def size_of(self, staging_id: str) -> int:
        """Bytes on disk of a draft that is open or sealed, otherwise 0."""
        draft = self._drafts.get(staging_id)
        return draft.disk_size if draft is not None and _is_live(draft) else 0

    def growth_of(self, staging_id: str, run: TemplateRun) -> int:
        """Additional bytes on disk that `append` of this run takes."""
        draft, _ = self._open_draft(staging_id)
        size = HEAD_SIZE + len(encode_table(run.queues)) + run.size
        return max(draft.size + size - draft.disk_size, 0)

    def growth_until(self, staging_id: str, size: int) -> int:
        """Additional bytes on disk that a draft of this size takes."""
        return max(size - self._open_draft(staging_id)[0].disk_size, 0)

    def begin(self, identity: BatchIdentity | None = None) -> str:
        """Create a draft for one writer of a batch; its id cannot be guessed."""
        if self._closed:
            raise StoreClosed("the store is closed; open it again to stage batches")
        tag = "" if identity is None else run_tag(identity.sink, identity.run)
        staging_id = secrets.token_hex(ID_BYTES - len(tag) // 2) + tag
        path = f"{STAGING_DIR}/{staging_id}"
        try:
            file = self._spares.take(path)
            if file is None:
                self._file_system.make_dir(STAGING_DIR)
                file = self._file_system.create(path)
        except OSError as error:
            raise DiskFull(f"cannot begin a staged batch: {error}") from error
        draft = Draft(file.size, self._lease(identity), DraftState.OPEN, identity)
        draft.file = file
        self._drafts[staging_id] = draft
        return staging_id

    def append(
        self, staging_id: str, run: TemplateRun, count: int, records_crc: int | None = None
    ) -> None:
        """Add records; `records_crc` is their `body_crc`, if it is known.

        Raises `StagingRefused` over the limit and `DiskFull` when out of space.
        """
        draft, file = self._open_draft(staging_id)
        checked_runs((run,))
        if type(count) is not int or count < 0:
            raise InvalidArgument(f"count must be a number of records, not {count!r:.80}")
        table = encode_table(run.queues)
        head = encode_head(table, run.records, count, records_crc)
        size = len(head) + len(table) + len(run.records)
        self._check_room(draft, size)
        try:
            file.write(draft.size, head + table)
            file.write(draft.size + len(head) + len(table), run.records)
        except OSError as error:
            raise DiskFull(f"cannot stage {size} bytes: {error}") from error
        draft.resize(draft.size + size)
        draft.record_count += count
        draft.checksum = join_heads(head, draft.checksum)
        self._renew(draft)
        self._grown()

    def seal(self, staging_id: str) -> StagedPart:
        """End a draft that was written by `append`; returns what to publish."""
        draft, _ = self._open_draft(staging_id)
        return self._sealed(
            draft, StagedPart(staging_id, draft.record_count, draft.size, draft.checksum)
        )

    def grow(self, staging_id: str, size: int) -> int:
        """Reserve room up to `size` for a client that writes the file itself.

        Returns the size that was reserved before.
        """
        draft, _ = self._open_draft(staging_id)
        before = draft.size
        if size > draft.size:
            self._check_room(draft, size - draft.size)
            draft.resize(size)
            self._grown()
        self._renew(draft)
        return before

    def written_queues(self, part: StagedPart) -> set[tuple[bytes, int]]:
        """The queues of a file that a client wrote itself, before it is sealed.

        Raises `StagingRefused` unless the block heads agree with `part`. The records are verified
        before they are published.
        """
        draft, file = self._open_draft(part.staging_id)
        self.grow(part.staging_id, part.size)
        try:
            if file.size != max(part.size, draft.file_size):
                raise StagingRefused(f"{part.staging_id}: {file.size} bytes, not {part.size}")
            queues: set[tuple[bytes, int]] = set()
            read = NOTHING_READ
            found = staged_runs(
                part.staging_id, file, part.size, block_size_max=self._block_size_max
            )
            for run, after in found:
                queues.update(run.queues)
                read = after
        except OSError as error:
            raise DiskFailed(f"cannot read {part.staging_id}: {error}") from error
        _check_read(part, read)
        return queues

    def seal_written(self, part: StagedPart) -> StagedPart:
        """`seal` for a file that a client wrote itself; `written_queues` must come first."""
        draft, _ = self._open_draft(part.staging_id)
        # More may have been reserved than was written.
        draft.resize(part.size)
        return self._sealed(draft, part)

    @contextlib.contextmanager
    def open_runs(self, parts: Sequence[StagedPart]) -> Iterator[tuple[RecordRun, ...]]:
        """The records of sealed parts, valid inside the `with` block.

        Short parts are read at once. Of longer ones only the heads are read here; each run is read
        and its checksum compared when it is loaded.
        """
        if not isinstance(parts, (list, tuple)) or not all(map(_is_part, parts)):
            raise InvalidArgument("parts must be a list of StagedPart, as `seal` returned them")
        if len({part.staging_id for part in parts}) != len(parts):
            raise StagingRefused("a staging id is listed twice")
        is_short = sum(part.size for part in parts) <= READ_SIZE_MAX
        runs: list[RecordRun] = []
        with contextlib.ExitStack() as files:
            for part in parts:
                try:
                    found = self._open(part, files)
                except OSError as error:
                    raise DiskFailed(f"cannot read {part.staging_id}: {error}") from error
                runs += [TemplateRun(r.queues, r.load()) for r in found] if is_short else found
            yield tuple(runs)

    @contextlib.contextmanager
    def open_blocks(
        self, staging_id: str, before: ReadSoFar, until: int
    ) -> Iterator[Iterator[tuple[StagedRun, ReadSoFar]]]:
        """Blocks of a file that may still grow, from `before` to `until`.

        Valid inside the `with` block; on any thread.
        """
        try:
            file = self._opened(staging_id)
        except OSError as error:
            raise StagingRefused(f"{staging_id} cannot be read: {error}") from error
        try:
            size = min(until, file.size)
            yield staged_runs(staging_id, file, size, before, may_end_early=True)
        except OSError as error:
            raise StagingRefused(f"{staging_id} cannot be read: {error}") from error
        finally:
            file.close()

    def has_sealed(self, parts: Iterable[StagedPart]) -> bool:
        """Whether all of these can still be published."""
        found = (self._drafts.get(part.staging_id) for part in parts)
        return all(draft is not None and draft.state is DraftState.SEALED for draft in found)

    def is_known(self, staging_id: str) -> bool:
        """Whether a draft is open or sealed."""
        draft = self._drafts.get(staging_id)
        return draft is not None and _is_live(draft)

    def fingerprint(self, staging_id: str) -> tuple[int, ...]:
        """Changes when the file is modified; on any thread."""
        try:
            file = self._opened(staging_id)
            try:
                return file.fingerprint()
            finally:
                file.close()
        except OSError as error:
            raise StagingRefused(
                f"staging id {staging_id!r:.80} cannot be read: {error}"
            ) from error

    def keep(self, staging_ids: Iterable[str]) -> None:
        """Exclude these from expiry until they are dropped."""
        self._kept.update(staging_ids)

    def allow_expiry(self, staging_ids: Iterable[str]) -> None:
        """Undo `keep`."""
        self._kept.difference_update(staging_ids)

    def make_durable(self, staging_ids: Iterable[str]) -> None:
        """Sync sealed drafts, so that they survive a power cut; on any thread."""
        try:
            for staging_id in staging_ids:
                file = self._opened(staging_id, writable=True)
                try:
                    file.sync()
                finally:
                    file.close()
            self._file_system.sync_dir(STAGING_DIR)
            self._file_system.sync_dir("")
        except OSError as error:
            raise DiskFailed(f"staged batches cannot be made durable: {error}") from error

    def claim(self, parts: Sequence[StagedPart]) -> None:
        """The records are in the log: these parts cannot be published a second time."""
        for part in parts:
            self._drafts[part.staging_id].state = DraftState.CLAIMED

    def recycle(self, staging_id: str) -> None:
        """A claimed draft is durable in the log: keep its file for the next writer.

        Its own writer closed the file before it was sealed. Drafts that are not claimed are
        dropped.
        """
        draft = self._drafts.get(staging_id)
        if (
            draft is not None
            and draft.state is DraftState.CLAIMED
            and self._spares.put(f"{STAGING_DIR}/{staging_id}", draft.disk_size)
        ):
            del self._drafts[staging_id]
            self._kept.discard(staging_id)
        else:
            self.drop(staging_id)

    def drop(self, staging_id: str) -> bool:
        """Delete a draft; False when there is none with this id."""
        if not isinstance(staging_id, str):
            raise InvalidArgument(f"staging id must be text, not {staging_id!r:.80}")
        self._kept.discard(staging_id)
        draft = self._drafts.get(staging_id)
        if draft is None:
            return False
        draft.close()
        draft.disown()
        # It can no longer be published. If removing the file fails, `expire` retries.
        draft.state = DraftState.DROPPED
        draft.lease = Lease(self._clock.monotonic())
        path = f"{STAGING_DIR}/{staging_id}"

        def unlink() -> None:
            # Another process may have removed it, or put a directory in its place.
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                self._file_system.unlink(path)

        def removed(_: object, error: BaseException | None) -> None:
            if error is None:
                self._drafts.pop(staging_id, None)

        if draft.disk_size > UNLINK_INLINE_MAX:
            self._worker.submit(unlink, removed)
        else:
            with contextlib.suppress(OSError):
                unlink()
                removed(None, None)
        return True

    def expire(self) -> list[str]:
        """Drop drafts of batches without work for the expiry time, and old spare files."""
        expired = self.drop_expired()
        self._spares.expire()
        return expired

    def drop_expired(self) -> list[str]:
        """Drop drafts of batches without work for the expiry time."""
        limit = self._clock.monotonic() - self._expiry_ms / 1000
        expired = [
            staging_id
            for staging_id, draft in self._drafts.items()
            if draft.lease.renewed < limit and staging_id not in self._kept
        ]
        for staging_id in expired:
            self.drop(staging_id)
        return expired

    def close(self) -> None:
        """Close open drafts. Their files stay until they expire; spare files are removed."""
        for draft in self._drafts.values():
            draft.close()
        self._drafts.clear()
        self._spares.close()
        self._grown()
        self._closed = True

    def renew(self, identity: BatchIdentity) -> int:
        """Renew all drafts of a batch; returns how many there are."""
        now = self._clock.monotonic()
        mine = [
            draft for _, other, draft in self.drafts() if batch_key(other) == batch_key(identity)
        ]
        for draft in mine:
            draft.lease.renewed = now
        return len(mine)

    def _lease(self, identity: BatchIdentity | None) -> Lease:
        """The lease of the batch that `identity` works on, renewed."""
        now = self._clock.monotonic()
        if identity is not None:
            for _, other, draft in self.drafts():
                if batch_key(other) == batch_key(identity):
                    draft.lease.renewed = now
                    return draft.lease
        return Lease(now)

    def _renew(self, draft: Draft) -> None:
        draft.lease.renewed = self._clock.monotonic()

    def _sealed(self, draft: Draft, part: StagedPart) -> StagedPart:
        draft.close()
        draft.state = DraftState.SEALED
        draft.part = part
        self._renew(draft)
        return part

    def _grown(self) -> None:
        if self._on_growth is not None:
            sizes = [
                draft.size if draft.state is DraftState.OPEN else draft.disk_size
                for draft in self._drafts.values()
                if draft.state is DraftState.OPEN or draft.state is DraftState.SEALED
            ]
            self._on_growth(sum(sizes))

    def _check_room(self, draft: Draft, more: int) -> None:
        size = max(draft.size + more - draft.disk_size, 0)
        if self.size + self._spares.size + size > self._size_max:
            self._spares.clear()
        if self.size + size > self._size_max:
            raise StagingRefused(
                f"staging is full: {self.size + size} bytes would exceed "
                f"staging_size_max={self._size_max}; publish or abort batches first"
            )

    def _open_draft(self, staging_id: str) -> tuple[Draft, StoreFile]:
        wanted: object = staging_id
        draft = self._drafts.get(wanted) if isinstance(wanted, str) else None
        if draft is None or draft.file is None:
            raise StagingRefused(f"no batch is being staged under {staging_id!r:.80}")
        return draft, draft.file

    def _opened(self, staging_id: str, *, writable: bool = False) -> StoreFile:
        """The file of a draft; raises `StagingRefused` if another kind of file has its name."""
        try:
            return self._file_system.open(f"{STAGING_DIR}/{staging_id}", writable=writable)
        except (StoreUnusable, FileNotFoundError, IsADirectoryError) as error:
            raise StagingRefused(f"{staging_id} was replaced or removed: {error}") from error

    def _open(self, part: StagedPart, files: contextlib.ExitStack) -> list[StagedRun]:
        draft = self._drafts.get(part.staging_id)
        if draft is None or draft.state is not DraftState.SEALED:
            raise StagingRefused(f"staging id {part.staging_id!r:.80} is unknown, open or expired")
        file = self._opened(part.staging_id)
        files.callback(file.close)
        if file.size < part.size or file.size != draft.disk_size:
            raise StagingRefused(
                f"{part.staging_id}: the file has {file.size} bytes, the sealed part {part.size}"
            )
        runs, read = [], NOTHING_READ
        for run, after in staged_runs(part.staging_id, file, part.size):
            runs.append(run)
            read = after
        _check_read(part, read)
        return runs


def batch_key(identity: BatchIdentity) -> tuple[str, int, str]:
    """Sink, batch and run: drafts of the same batch agree in them."""
    return identity.sink, identity.batch, identity.run


def run_tag(sink: str, run: str) -> str:
    """End of the ids of drafts of this run."""
    digest = hashlib.sha256(f"{sink}\0{run}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[: 2 * RUN_TAG_BYTES]


def _is_live(draft: Draft) -> bool:
    return draft.state is DraftState.OPEN or draft.state is DraftState.SEALED


def _check_read(part: StagedPart, read: ReadSoFar) -> None:
    if read != (part.size, part.record_count, part.checksum):
        raise StagingRefused(f"{part.staging_id}: count or checksum does not match")


def _is_part(part: object) -> bool:
    if not isinstance(part, StagedPart) or not isinstance(part.staging_id, str):
        return False
    return all(type(number) is int for number in part[1:4])
