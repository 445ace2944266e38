"""Progress of a broadcasting consumer in a file that is replaced atomically.

    {"offsets": {topic: {broker name: {queue id: offset}}}}

Every member reads every message, so each keeps its own progress: one directory per member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker_core.client.push.offset_keeper import NotedOffsets
from broker_core.codec.json.fields import I64_MAX, object_field, whole_field, whole_number
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX, MessageQueue
from broker_core.errors import InvalidArgument, InvalidConfig, StoreLocked, StoreUnusable
from broker_core.storage.files.json_table import JsonTable
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.storage.state.lock_and_abort_files import take_lock

_OFFSETS: Final = "offsets"


class LocalOffsets(NotedOffsets):
    """The file `<group>.json` in a directory that this consumer locks."""

    def __init__(self, directory: str, group: str) -> None:
        super().__init__()
        try:
            self._file_system = PosixFileSystem(directory)
        except StoreUnusable as error:
            raise InvalidConfig("offsets_directory", directory, str(error)) from None
        try:
            self._lock = take_lock(self._file_system)
        except StoreLocked:
            self._file_system.close()
            accepted = "another consumer uses it; give each its own"
            raise InvalidConfig("offsets_directory", directory, accepted) from None
        self._table = JsonTable(self._file_system, f"{group}.json")
        self._saving: asyncio.Future[None] | None = None
        try:
            self._kept = _parse(self._table.load() or {})
        except BaseException:
            self.close()
            raise

    async def read(self, queue: MessageQueue) -> int | None:
        """The saved offset."""
        return self._kept.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Replace the file if something changed; raises `OSError` when that fails."""
        while self._saving is not None and not self._saving.done():
            await asyncio.wait((self._saving,))
        changed = self.take_changed(queues)
        if not changed:
            return True
        self._kept.update(changed)
        loop = asyncio.get_running_loop()
        # On a thread, to keep disk I/O off the loop. One save at a time, so that the newest wins.
        saving = self._saving = loop.run_in_executor(None, self._table.save, _table_of(self._kept))
        saving.add_done_callback(_mark_seen)
        try:
            # Shielded: stopping the consumer cancels the caller, not the save.
            await asyncio.shield(saving)
        except BaseException:
            self.put_back(changed)
            raise
        finally:
            if saving.done():
                self._saving = None
        return True

    def close(self) -> None:
        """Unlock the directory."""
        self._lock.close()
        self._file_system.close()


def _mark_seen(saving: asyncio.Future[None]) -> None:
    """Marks the exception as retrieved; the next save reports it again."""
    if not saving.cancelled():
        saving.exception()


def _table_of(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in offsets.items():
        brokers = topics.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return {_OFFSETS: topics}


def _parse(table: Mapping[str, Any]) -> dict[MessageQueue, int]:
    try:
        topics = object_field(table, _OFFSETS)
        return {
            MessageQueue(
                topic, broker, whole_number(queue_id, "queue id", 0, QUEUE_ID_MAX)
            ): whole_field(queues, queue_id, None, 0, I64_MAX)
            for topic in topics
            for brokers in (object_field(topics, topic),)
            for broker in brokers
            for queues in (object_field(brokers, broker),)
            for queue_id in queues
        }
    except InvalidArgument as error:
        text = f"the stored offsets are malformed ({error}); remove the file to start over"
        raise InvalidArgument(text) from None
