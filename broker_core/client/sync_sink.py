"""`SyncSinkClient`: the sink client for threads and for workers that have no event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from broker_core.client.client_config import ClientConfig
from broker_core.client.sink_client import PublishedOffsets, SinkClient
from broker_core.client.stage_writer import StagedAt, StageWriter
from broker_core.client.sync_face import SyncFace
from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.sink_messages import BatchIdentity, SinkStatus


class SyncSinkClient(SyncFace):
    """`SinkClient` with calls that wait; options as there. Use it with `with`."""

    def __init__(self, config: ClientConfig | str, **options: Any) -> None:
        super().__init__(config)
        self._sink = SinkClient(self.config, **options)

    async def _open(self) -> None:
        await self._sink.start()

    async def _close(self) -> None:
        await self._sink.stop()

    def is_supported(self, broker_name: str) -> bool:
        """Whether a broker can publish exactly once."""
        return self.call(self._sink.is_supported(broker_name))

    def coordinator(self, sink: str, broker_names: Iterable[str]) -> str:
        """The broker that decides about batches of a sink."""
        return self.call(self._sink.coordinator(sink, broker_names))

    def stage(self, identity: BatchIdentity, broker_name: str) -> SyncStageWriter:
        """Begin to stage rows of a batch at a broker."""
        return SyncStageWriter(self, self.call(self._sink.stage(identity, broker_name)))

    def publish(
        self, identity: BatchIdentity, staged: Sequence[StagedAt], coordinator: str | None = None
    ) -> PublishedOffsets:
        """Publish exactly these as one batch, or learn that it was published before."""
        return self.call(self._sink.publish(identity, staged, coordinator))

    def abort(self, staged: Iterable[StagedAt]) -> int:
        """Drop what was staged, as far as brokers can be reached."""
        return self.call(self._sink.abort(staged))

    def status(self, sink: str, broker_name: str) -> SinkStatus:
        """What a broker knows of a sink."""
        return self.call(self._sink.status(sink, broker_name))


class SyncStageWriter:
    """`StageWriter` with calls that wait; leaving a `with` block by an error aborts it."""

    def __init__(self, client: SyncSinkClient, writer: StageWriter) -> None:
        self._client = client
        self._writer = writer

    def __enter__(self) -> SyncStageWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abort()

    @property
    def record_count(self) -> int:
        """Rows so far."""
        return self._writer.record_count

    def append(self, batch: ColumnBatch) -> None:
        """Stage rows; waits while the window is full."""
        self._client.call(self._writer.append(batch))

    def seal(self) -> StagedAt:
        """Everything is at the broker; what to publish."""
        return self._client.call(self._writer.seal())

    def abort(self) -> None:
        """Drop what was staged, as far as the broker can be reached."""
        self._client.call(self._writer.abort())
