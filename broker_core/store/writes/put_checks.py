"""The checks before an append, in RocketMQ's order, each with its own status."""

from __future__ import annotations

from broker_core.codec.native import measure_batch
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.record_reasons import PROPERTIES_TOO_LONG
from broker_core.codec.wire.topic_name import topic_name_problem
from broker_core.config import StoreConfig
from broker_core.errors import InvalidArgument, MalformedBatch
from broker_core.protocol_codes import BrokerRole, PutStatus
from broker_core.runtime.clock import Clock
from broker_core.storage.log.append_group import GROUP_TOPIC
from broker_core.store.running_flags import Running, RunningFlags
from broker_core.store.writes.put_result import PutResult


class AppendPressure:
    """Detects appends that stall in the page cache.

    One thread appends, so a stall is detected when it is over. After an append that took longer
    than the limit, puts are refused for the same time (at most the limit), so that the kernel can
    catch up.
    """

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self.limit_s = timeout_ms / 1000
        # Read by every put: as long as nothing stalled, the clock is not read.
        self.has_stalled = False
        self._busy_until = 0.0

    def took(self, started: float) -> float:
        """Note an append that began at `started`; returns its seconds."""
        duration = self._clock.monotonic() - started
        if duration > self.limit_s:
            self.stalled(duration)
        return duration

    def stalled(self, duration: float) -> None:
        """An append that has just ended took longer than the limit."""
        self.has_stalled = True
        self._busy_until = self._clock.monotonic() + min(duration, self.limit_s)

    @property
    def busy(self) -> bool:
        """Whether puts are refused at the moment."""
        return self.has_stalled and self._clock.monotonic() < self._busy_until


class PutChecks:
    """Each check returns None, or the result that refuses the batch."""

    def __init__(self, config: StoreConfig, flags: RunningFlags, pressure: AppendPressure) -> None:
        self._config = config
        self._flags = flags
        self._pressure = pressure
        # Names are few and repeat: each is checked once.
        self._good_topics: set[bytes] = set()

    def refuse_store(self) -> PutResult | None:
        """Refuse puts unless the store is open and a master, and no flag is set."""
        if self._flags.closed:
            return _refusal(PutStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        if self._config.broker_role is BrokerRole.SLAVE:
            return _refusal(PutStatus.SERVICE_NOT_AVAILABLE, "a slave does not accept messages")
        if self._flags.bits & Running.REPLICAS_MISSING:
            remark = "in-sync replicas not enough"
            return _refusal(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, remark)
        if not self._flags.writeable:
            remark = f"the store is not writeable: {self._flags.describe()}"
            return _refusal(PutStatus.SERVICE_NOT_AVAILABLE, remark)
        return None

    def refuse_topics(
        self, queues: tuple[tuple[bytes, int], ...], *, internal: bool = False
    ) -> PutResult | None:
        """Check names, because they become directories, and repeated queues."""
        for topic, _ in queues:
            if topic in self._good_topics:
                continue
            problem = topic_name_problem(topic)
            if topic == GROUP_TOPIC and not internal:
                problem = "topic is reserved for append groups"
            if problem is not None:
                return _refusal(PutStatus.MESSAGE_ILLEGAL, f"{topic[:300]!r}: {problem}")
            if topic != GROUP_TOPIC and len(self._good_topics) < 100_000:
                self._good_topics.add(topic)
        if len(queues) > 1 and len(set(queues)) != len(queues):
            return _refusal(PutStatus.MESSAGE_ILLEGAL, "a queue is listed twice")
        return None

    def refuse_busy(self) -> PutResult | None:
        """Refuse puts while the page cache cannot keep up."""
        if self._pressure.busy:
            return _refusal(
                PutStatus.OS_PAGE_CACHE_BUSY,
                "[PC_SYNCHRONIZED]broker busy: the last append took longer than "
                f"{self._config.page_cache_busy_timeout_ms} ms",
            )
        return None

    def measure(self, batch: ColumnBatch) -> tuple[int, int] | PutResult:
        """Total size and largest record, or the refusal of a row that breaks a limit."""
        if batch.count == 0:
            return _refusal(PutStatus.MESSAGE_ILLEGAL, "the batch has no rows")
        try:
            total, largest = measure_batch(batch)
        except MalformedBatch as error:
            if error.reason == PROPERTIES_TOO_LONG:
                return _refusal(PutStatus.PROPERTIES_SIZE_EXCEEDED, str(error))
            return _refusal(PutStatus.MESSAGE_ILLEGAL, str(error))
        except (TypeError, ValueError, OverflowError, BufferError) as error:
            raise InvalidArgument(f"a column of the batch cannot be read: {error}") from error
        if largest > min(self._config.message_size_max, self._config.record_size_max):
            refusal = self._refuse_sizes(batch, largest)
            if refusal is not None:
                return refusal
        return total, largest

    def _refuse_sizes(self, batch: ColumnBatch, largest: int) -> PutResult | None:
        """Refuse a body or a record that is too large; a record is larger than its body."""
        limit = self._config.message_size_max
        _, offsets, width = batch.body
        ends = memoryview(offsets).cast("B").cast("i" if width == 4 else "q")
        for row in range(batch.count):
            size = ends[row + 1] - ends[row]
            if size > limit:
                remark = f"row {row}: the body has {size} bytes, message_size_max is {limit}"
                return _refusal(PutStatus.MESSAGE_ILLEGAL, remark)
        if largest > self._config.record_size_max:
            remark = f"a record of {largest} bytes exceeds {self._config.record_size_max}"
            return _refusal(PutStatus.MESSAGE_ILLEGAL, remark)
        return None


def _refusal(status: PutStatus, remark: str) -> PutResult:
    return PutResult(status, remark)
