"""Reads from slaves: which broker a consumer should read from, and how a slave answers.

With `slaveReadEnable` a master sends readers that are far behind to a slave: their messages are no
longer in memory. A slave sends readers that have caught up back to a reachable master. It never
corrects an offset: the master may have messages that the slave lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.tables.topic_table import topic_of_log
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.protocol_codes import MASTER_ID
from broker_core.store.message_store import MessageStore
from broker_core.store.reads.message_reader import GetResult

# A slave with a reachable master holds pulls no longer than this. Without a hold, clients that have
# not noticed the master's return would retry in a tight loop.
RETURN_MS: Final = 1_000


class SlaveReads:
    """Event loop only. `is_slave()` and `master_is_there()` may change while the broker runs."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        is_slave: Callable[[], bool],
        master_is_there: Callable[[], bool],
        memory_size: int,
    ) -> None:
        self._store = store
        self._is_enabled = config.slave_read_enable
        self._corrects_offsets = config.offset_check_in_slave
        self.is_slave = is_slave
        self._master_is_there = master_is_there
        self._in_memory_size = memory_size * config.memory_read_ratio // 100

    def keeps_offset(self) -> bool:
        """Whether an offset outside the queue is kept: the master may have its messages."""
        return self.is_slave() and not self._corrects_offsets

    def unknown_topic(self, name: str) -> TopicConfig | None:
        """A topic that a slave has messages of, but has not copied yet."""
        return topic_of_log(name, self._store) if self.is_slave() else None

    def sends_back(self) -> bool:
        """Whether readers that find nothing here should go to the reachable master."""
        return self.is_slave() and self._master_is_there()

    def suggested_id(
        self, topic: str, queue_id: int, result: GetResult, usual_id: int, slow_id: int
    ) -> int:
        """The broker id to read from next; the group prefers `usual_id` and `slow_id`."""
        if not self._is_enabled:
            return MASTER_ID
        is_behind = self._is_behind(topic, queue_id, result)
        if not is_behind and self.sends_back():
            return MASTER_ID
        return slow_id if is_behind else usual_id

    def _is_behind(self, topic: str, queue_id: int, result: GetResult) -> bool:
        """Whether the last record that was read is too old to be in memory."""
        low, high = self._store.log_range
        if high - low <= self._in_memory_size:
            return False
        units = self._store.units(topic, queue_id, result.next_offset - 1, 1)
        return bool(units) and high - units[0][0] > self._in_memory_size
