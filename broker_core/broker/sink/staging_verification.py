"""Verifies staged parts on threads, while they are written and after they are sealed.

    written:   ── block ── block ── block ──   sealed
    verified:      └── up to here ──┘ └── the rest ──┘

A verified part has the promised size, count and checksum, and all of its records may be sent. The
verdict holds until the file is modified. A part without a verdict, for example after a restart, is
verified when it is published. Changes that the file system does not report are found by checksum
when the records are copied (`storage/staging/staged_run.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker_core.codec.records.staged_block import StagedPart
from broker_core.errors import MalformedRecord, StagingRefused
from broker_core.storage.log.append_group import Inspected
from broker_core.storage.log.commit_log import RecordRun, TemplateRun
from broker_core.storage.staging.staged_run import NOTHING_READ, PrivateMemory, ReadSoFar
from broker_core.store.message_store import MessageStore

CheckRecords = Callable[[memoryview], None]


class Verdict(NamedTuple):
    """What was found in a staging file so far; `part` is set when all of it was verified."""

    read: ReadSoFar = NOTHING_READ
    runs: Inspected = ()
    part: StagedPart | None = None
    fingerprint: tuple[int, ...] = ()


_Verification = asyncio.Future[Verdict]
_NOTHING = Verdict()


class StagingVerification:
    """Event loop only; `check_records` is called on threads."""

    def __init__(self, store: MessageStore, check_records: CheckRecords) -> None:
        self._store = store
        self._check_records = check_records
        self._verifications: dict[str, _Verification] = {}

    def __len__(self) -> int:
        return len(self._verifications)

    def written(self, staging_id: str, until: int) -> None:
        """A client wrote its file up to `until`: verify that, unless a verification is running."""
        last = self._verifications.get(staging_id)
        if last is None or last.done():
            self._start(staging_id, _found(last), until, None)

    def sealed(self, part: StagedPart) -> None:
        """Verify the rest. Errors are raised when the part is published."""
        self._forget_gone()
        last = self._verifications.get(part.staging_id)
        if last is None or last.done():
            self._start(part.staging_id, _found(last), part.size, part)
            return

        def go_on(done: _Verification) -> None:
            if self._verifications.get(part.staging_id) is last:
                self._start(part.staging_id, _found(done), part.size, part)

        last.add_done_callback(go_on)

    async def verified(self, parts: Sequence[StagedPart]) -> Inspected:
        """What the record runs of these parts hold, one part after the other.

        Raises `StagingRefused` for damaged records, and what a send of them would raise.
        """
        while under_way := [
            verification
            for part in parts
            if (verification := self._verifications.get(part.staging_id)) is not None
            and not verification.done()
        ]:
            await asyncio.wait(under_way)
        standing = [self._standing(part) or self._anew(part) for part in parts]
        if standing:
            await asyncio.wait(standing)
        return tuple(run for verification in standing for run in verification.result().runs)

    def check(self, runs: Sequence[RecordRun]) -> None:
        """Raise what sends of these records would raise; on any thread."""
        memory = PrivateMemory()
        for run in runs:
            self._check_records(memoryview(run.load(memory)))

    def _standing(self, part: StagedPart) -> _Verification | None:
        verification = self._verifications.get(part.staging_id)
        found = _found(verification)
        if found.part != part:
            return None
        untouched = found.fingerprint == self._store.staging.fingerprint(part.staging_id)
        return verification if untouched else None

    def _anew(self, part: StagedPart) -> _Verification:
        return self._start(part.staging_id, _NOTHING, part.size, part)

    def _start(
        self, staging_id: str, before: Verdict, until: int, part: StagedPart | None
    ) -> _Verification:
        loop = asyncio.get_running_loop()
        verification = loop.run_in_executor(None, self._verify, staging_id, before, until, part)
        verification.add_done_callback(_look_at)
        self._verifications[staging_id] = verification
        return verification

    def _forget_gone(self) -> None:
        known = self._store.staging.is_known
        for staging_id in [name for name in self._verifications if not known(name)]:
            del self._verifications[staging_id]

    def _verify(
        self, staging_id: str, before: Verdict, until: int, part: StagedPart | None
    ) -> Verdict:
        """On a thread."""
        staging, memory = self._store.staging, PrivateMemory()
        fingerprint = staging.fingerprint(staging_id)
        found, read = list(before.runs), before.read
        with staging.open_blocks(staging_id, read, until) as blocks:
            for block, after in blocks:
                # Read once: both checks must see the same bytes.
                run = TemplateRun(block.queues, block.load(memory))
                try:
                    found += self._store.inspect_runs((run,))
                except MalformedRecord as error:
                    text = f"the staged records cannot be published: {error}"
                    raise StagingRefused(text) from None
                self.check((run,))
                read = after
        if part is not None and read != (part.size, part.record_count, part.checksum):
            raise StagingRefused(f"{staging_id}: size, count or checksum does not match")
        return Verdict(read, tuple(found), part, fingerprint)


def _found(verification: _Verification | None) -> Verdict:
    """The verdict of a verification that ended without an error."""
    if (
        verification is None
        or not verification.done()
        or verification.cancelled()
        or verification.exception() is not None
    ):
        return _NOTHING
    return verification.result()


def _look_at(verification: _Verification) -> None:
    """Mark the exception as retrieved: it is only raised if the part is published."""
    if not verification.cancelled():
        verification.exception()
