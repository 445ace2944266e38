"""Which member of a broker a consumer should read from, and what a slave answers differently.

A master sends readers that are far behind to a slave, if it may (`slaveReadEnable`): what they
want is no longer in memory. A slave sends readers that are not behind back to the master as soon
as that is there. It never corrects an offset: what it does not have, the master may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.broker.broker_config import BrokerConfig
from broker_core.codec.topic_config import TopicConfig
from broker_core.store.message_reader import GetResult
from broker_core.store.message_store import MessageStore

MASTER_ID: Final = 0
# Readers that find nothing at a slave whose master is there are held no longer than this. Clients
# that have not seen the master come back would ask again and again if they were not held.
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
        """Whether an offset outside the queue stays as it is: the master may have what is here."""
        return self.is_slave() and not self._corrects_offsets

    def unknown_topic(self, name: str) -> TopicConfig | None:
        """A topic that a slave has messages of while its master has not told of it yet."""
        return topic_of_log(name, self._store) if self.is_slave() else None

    def sends_back(self) -> bool:
        """Whether readers that find nothing here should go to the master, which is there."""
        return self.is_slave() and self._master_is_there()

    def suggested_id(
        self, topic: str, queue_id: int, result: GetResult, usual_id: int, slow_id: int
    ) -> int:
        """The member to ask next, for a group that prefers these two."""
        if not self._is_enabled:
            return MASTER_ID
        is_behind = self._is_behind(topic, queue_id, result)
        if not is_behind and self.sends_back():
            return MASTER_ID
        return slow_id if is_behind else usual_id

    def _is_behind(self, topic: str, queue_id: int, result: GetResult) -> bool:
        """Whether the last record that was looked at is older than what memory can hold."""
        low, high = self._store.log_range
        if high - low <= self._in_memory_size:
            return False
        units = self._store.units(topic, queue_id, result.next_offset - 1, 1)
        return bool(units) and high - units[0][0] > self._in_memory_size


def topic_of_log(name: str, store: MessageStore) -> TopicConfig | None:
    """A topic with the queues that have messages; None when there are none."""
    queues = [
        queue_id
        for topic, queue_id in store.queues()
        if topic == name and store.offsets(topic, queue_id)[1]
    ]
    return TopicConfig(name, max(queues) + 1, max(queues) + 1) if queues else None
