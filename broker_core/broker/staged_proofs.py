"""Proves staged records ahead of their publication, on threads, while and after they are written.

    written: ── block ── block ── block ──   sealed
    proven:      └── up to here ──┘ └── the rest ──┘

A proof says that every block and every record of a file is what its writer said, and may be sent.
It stands as long as nobody has touched the file since it was sealed; what has no proof when it is
published, as after a restart, is proven then. Changes that the file system does not tell are found
when the records are copied, by their checksums (`storage/staged_run.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker_core.codec.sink_messages import QueueKeys
from broker_core.errors import MalformedRecord, StagingRefused
from broker_core.storage.append_group import Inspected
from broker_core.storage.commit_log import RecordRun, TemplateRun
from broker_core.storage.staged_run import NOTHING_READ, PrivateMemory, ReadSoFar
from broker_core.storage.staging import StagedBatch
from broker_core.store.message_store import MessageStore

CheckRecords = Callable[[QueueKeys, memoryview], None]


class Proof(NamedTuple):
    """What was found in a staged file so far; all of it when `batch` is set."""

    read: ReadSoFar = NOTHING_READ
    runs: Inspected = ()
    batch: StagedBatch | None = None
    fingerprint: tuple[int, ...] = ()


_Proving = asyncio.Future[Proof]
_NOTHING = Proof()


class StagedProofs:
    """Event loop only; `check_records` is called on threads."""

    def __init__(self, store: MessageStore, check_records: CheckRecords) -> None:
        self._store = store
        self._check_records = check_records
        self._proofs: dict[str, _Proving] = {}

    def __len__(self) -> int:
        return len(self._proofs)

    def written(self, staging_id: str, until: int) -> None:
        """A writer has written that far: prove it meanwhile, unless the last step still runs."""
        last = self._proofs.get(staging_id)
        if last is None or last.done():
            self._start(staging_id, _found(last), until, None)

    def sealed(self, batch: StagedBatch) -> None:
        """Prove the rest. What is wrong with it is told when it is published."""
        self._forget_gone()
        last = self._proofs.get(batch.staging_id)
        if last is None or last.done():
            self._start(batch.staging_id, _found(last), batch.size, batch)
            return

        def go_on(done: _Proving) -> None:
            if self._proofs.get(batch.staging_id) is last:
                self._start(batch.staging_id, _found(done), batch.size, batch)

        last.add_done_callback(go_on)

    async def proven(self, batches: Sequence[StagedBatch]) -> Inspected:
        """What the runs of these batches hold, one batch after the other.

        Raises `StagingRefused` for records that are damaged, and what a send of them would raise.
        """
        while under_way := [
            proof
            for batch in batches
            if (proof := self._proofs.get(batch.staging_id)) is not None and not proof.done()
        ]:
            await asyncio.wait(under_way)
        standing = [self._standing(batch) or self._anew(batch) for batch in batches]
        if standing:
            await asyncio.wait(standing)
        return tuple(run for proof in standing for run in proof.result().runs)

    def check(self, runs: Sequence[RecordRun]) -> None:
        """Raise what sends of such records would raise; on any thread."""
        memory = PrivateMemory()
        for run in runs:
            self._check_records(run.queues, memoryview(run.load(memory)))

    # Inside

    def _standing(self, batch: StagedBatch) -> _Proving | None:
        proof = self._proofs.get(batch.staging_id)
        found = _found(proof)
        if found.batch != batch:
            return None
        untouched = found.fingerprint == self._store.staging.fingerprint(batch.staging_id)
        return proof if untouched else None

    def _anew(self, batch: StagedBatch) -> _Proving:
        return self._start(batch.staging_id, _NOTHING, batch.size, batch)

    def _start(
        self, staging_id: str, before: Proof, until: int, batch: StagedBatch | None
    ) -> _Proving:
        loop = asyncio.get_running_loop()
        proof = loop.run_in_executor(None, self._prove, staging_id, before, until, batch)
        proof.add_done_callback(_look_at)
        self._proofs[staging_id] = proof
        return proof

    def _forget_gone(self) -> None:
        known = self._store.staging.is_known
        for staging_id in [name for name in self._proofs if not known(name)]:
            del self._proofs[staging_id]

    def _prove(
        self, staging_id: str, before: Proof, until: int, batch: StagedBatch | None
    ) -> Proof:
        """On a thread."""
        staging, memory = self._store.staging, PrivateMemory()
        fingerprint = staging.fingerprint(staging_id)
        found, read = list(before.runs), before.read
        with staging.open_blocks(staging_id, read, until) as blocks:
            for block, after in blocks:
                # One look at the file for both: the second must not see another one.
                run = TemplateRun(block.queues, block.load(memory))
                try:
                    found += self._store.inspect_runs((run,))
                except MalformedRecord as error:
                    text = f"the staged records cannot be published: {error}"
                    raise StagingRefused(text) from None
                self.check((run,))
                read = after
        if batch is not None and read != (batch.size, batch.record_count, batch.checksum):
            raise StagingRefused(f"{staging_id}: size, count or checksum does not match")
        return Proof(read, tuple(found), batch, fingerprint)


def _found(proof: _Proving | None) -> Proof:
    """What it says if it is there and well."""
    if proof is None or not proof.done() or proof.cancelled() or proof.exception() is not None:
        return _NOTHING
    return proof.result()


def _look_at(proof: _Proving) -> None:
    """Nobody may ever ask for it."""
    if not proof.cancelled():
        proof.exception()
