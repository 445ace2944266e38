"""`SyncSinkClient` and `SyncStageWriter`."""

from __future__ import annotations

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from broker_core.client.blocking.face import SyncFace, client_config, waits
from broker_core.client.connection.config import ClientConfig
from broker_core.client.sink.client import SinkClient
from broker_core.client.sink.stage_writer import StageWriter
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity

T = TypeVar("T")


class SyncSinkClient(SyncFace[SinkClient]):
    """`SinkClient` with calls that wait; options as there. Use it with `with`."""

    def __init__(self, config: ClientConfig | str, **options: Any) -> None:
        config = client_config(config)
        super().__init__(config, SinkClient(config, **options))

    is_supported = waits(SinkClient.is_supported)
    coordinator = waits(SinkClient.coordinator)
    publish = waits(SinkClient.publish)
    abort = waits(SinkClient.abort)
    status = waits(SinkClient.status)

    def stage(self, identity: BatchIdentity, broker_name: str) -> SyncStageWriter:
        """Begin to stage rows of a batch at a broker."""
        return SyncStageWriter(self, self.call(self.asynchronous.stage(identity, broker_name)))


class SyncStageWriter:
    """`StageWriter` with calls that wait; leaving a `with` block by an error aborts it."""

    def __init__(self, client: SyncSinkClient, writer: StageWriter) -> None:
        self._client = client
        self.asynchronous = writer

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
        return self.asynchronous.record_count

    append = waits(StageWriter.append)
    seal = waits(StageWriter.seal)
    abort = waits(StageWriter.abort)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the client's loop and wait for its result."""
        return self._client.call(coroutine, timeout_s)
