"""A store with sinks on a simulated disk: stage, publish, restart, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from broker_core.broker.sink.batches import SINKS_FILE, SinkBatches
from broker_core.broker.sink.publisher import SinkPublisher
from broker_core.broker.sink.staging import SinkStaging
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    BatchIdentity,
    Publication,
    PublishAnswer,
    encode_blocks,
    parse_block,
)
from broker_core.codec.wire.send_request import SendRequest
from broker_core.config import StoreConfig
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore
from tests.codec.codec_backends import batch_of
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedDisk

SMALL: dict[str, Any] = {
    "commit_log_file_size": 8 << 10,
    "consume_queue_file_size": 200 * 20,
    "index_hash_slots": 8,
    "index_entries_max": 64,
}
QUEUES = (("T", 0), ("T", 1), ("U", 0))
Rows = dict[tuple[str, int], Sequence[bytes]]


def identity(batch: int = 0, run: str = "run-1", sink: str = "S", **fields: Any) -> BatchIdentity:
    """The identity that publishes."""
    return BatchIdentity(sink, batch, run, **fields)


class SinkStore:
    """One run of a broker, as far as sinks go."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        *,
        check_queue: Callable[[SendRequest], object] = lambda request: None,
        limits: dict[str, Any] | None = None,
        staging_limits: dict[str, Any] | None = None,
        inline_size_max: int = 1 << 20,
        **settings: Any,
    ) -> None:
        self.disk = SimulatedDisk(clock=ManualClock()) if disk is None else disk
        assert isinstance(self.disk.clock, ManualClock)
        self.clock = self.disk.clock
        self._options: dict[str, Any] = {
            "check_queue": check_queue, "limits": limits, "staging_limits": staging_limits,
            "inline_size_max": inline_size_max, **settings,
        }  # fmt: skip
        config = StoreConfig(**{**SMALL, **settings})
        self.store = MessageStore.open(self.disk, config, clock=self.clock)
        self.stats = BrokerStats(self.clock)
        self.batches = SinkBatches(
            store=self.store,
            table=JsonTable(self.disk, SINKS_FILE),
            clock=self.clock,
            **(limits or {}),
        )
        self.staging = SinkStaging(
            store=self.store,
            clock=self.clock,
            check_queue=check_queue,
            message_size_max=config.message_size_max,
            segment_size=config.commit_log_file_size,
            **(staging_limits or {}),
        )
        self.publisher = SinkPublisher(
            store=self.store,
            batches=self.batches,
            staging=self.staging,
            stats=self.stats,
            inline_size_max=inline_size_max,
        )

    # What clients do

    def stage(self, asked: BatchIdentity, rows: Rows | Iterable[bytes]) -> StagedPart:
        """One writer: announce, begin, append, seal."""
        asyncio.run(self.publisher.announce(asked))
        staging_id = self.staging.begin(asked)
        for index, body in enumerate(blocks_of(rows)):
            self.staging.append(staging_id, index, *parse_block(body))
        return self.staging.seal(staging_id)

    def publish(self, asked: BatchIdentity, *parts: StagedPart) -> PublishAnswer:
        """One request."""
        return asyncio.run(self.publisher.publish(Publication(asked, parts)))

    def write(self, asked: BatchIdentity, rows: Rows | Iterable[bytes]) -> PublishAnswer:
        """Stage and publish."""
        return self.publish(asked, self.stage(asked, rows))

    # What readers see

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Every visible body of a queue."""
        offset, high = self.store.offsets(topic, queue_id)
        found: list[bytes] = []
        while offset < high:
            result = self.store.get(topic, queue_id, offset, 1_000, size_max=1 << 24)
            found += [message.body for message in result.messages()]
            offset = result.next_offset
        return found

    def all_bodies(self) -> list[bytes]:
        """Of all queues that the tests use."""
        return [body for queue in QUEUES for body in self.bodies(*queue)]

    @property
    def staged_files(self) -> list[str]:
        """Staging files that belong to a draft."""
        names = self.disk.list("staging") if self.disk.is_dir("staging") else []
        return [name for name in names if not name.startswith("spare-")]

    # Ends

    def stop(self) -> None:
        """Clean stop, as a broker does it."""
        self.batches.save()
        self.store.close()

    def restart(self, **changes: Any) -> SinkStore:
        """Clean stop, and the next process."""
        self.stop()
        return self.successor(self.disk, **changes)

    def killed(self, **changes: Any) -> SinkStore:
        """Only the process is killed; the next one."""
        return self.successor(self.disk.kill(), **changes)

    def successor(self, disk: SimulatedDisk, **changes: Any) -> SinkStore:
        """The next process, on that disk."""
        return SinkStore(disk, **{**self._options, **changes})


def blocks_of(rows: Rows | Iterable[bytes], size_max: int = 1 << 20) -> list[bytes]:
    """STAGE_APPEND bodies for rows of one queue, or of several."""
    by_queue: Rows = rows if isinstance(rows, dict) else {("T", 0): list(rows)}
    blocks = []
    for (topic, queue_id), bodies in by_queue.items():
        batch = batch_of(*bodies, queues=((topic.encode(), queue_id),))
        blocks += [bytes(body) for _, body in encode_blocks(batch, size_max)]
    return blocks
