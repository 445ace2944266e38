"""Progress of a broadcasting consumer in a file of its own, replaced atomically.

    {"offsets": {topic: {broker name: {queue id: offset}}}}

Every member reads every message, so each keeps its own progress: one directory for one member.
The only file of the client that uses the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker_core.client.offset_keeper import NotedOffsets
from broker_core.codec.json_fields import I64_MAX, object_field, whole_field, whole_number
from broker_core.codec.message_queue import QUEUE_ID_MAX, MessageQueue
from broker_core.errors import InvalidArgument, InvalidConfig, StoreLocked, StoreUnusable
from broker_core.storage.json_table import JsonTable
from broker_core.storage.posix_file_system import PosixFileSystem
from broker_core.storage.run_marks import take_lock

_OFFSETS: Final = "offsets"


class LocalOffsets(NotedOffsets):
    """The file `<group>.json` in a directory that nobody else uses meanwhile."""

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
        """What the file has."""
        return self._kept.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> bool:
        """Replace the file if something changed; raises `OSError` when the disk refuses."""
        while self._saving is not None and not self._saving.done():
            await asyncio.wait((self._saving,))
        changed = self.take_changed(queues)
        if not changed:
            return True
        self._kept.update(changed)
        loop = asyncio.get_running_loop()
        # On a thread: the loop never waits for a disk. One save at a time, or the older may win.
        saving = self._saving = loop.run_in_executor(None, self._table.save, _table_of(self._kept))
        saving.add_done_callback(_mark_seen)
        try:
            # Whoever stops this consumer ends the caller: the save goes on, and the last one waits.
            await asyncio.shield(saving)
        except BaseException:
            self.put_back(changed)
            raise
        finally:
            if saving.done():
                self._saving = None
        return True

    def close(self) -> None:
        """Let another consumer use the directory."""
        self._lock.close()
        self._file_system.close()


def _mark_seen(saving: asyncio.Future[None]) -> None:
    """A failure that nobody waited for is met again by the next save."""
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
            MessageQueue(topic, broker, whole_number(queue_id, "queue id", 0, QUEUE_ID_MAX)):
                whole_field(queues, queue_id, None, 0, I64_MAX)
            for topic in topics
            for brokers in (object_field(topics, topic),)
            for broker in brokers
            for queues in (object_field(brokers, broker),)
            for queue_id in queues
        }  # fmt: skip
    except InvalidArgument as error:
        text = f"the kept offsets make no sense ({error}); remove the file to start anew"
        raise InvalidArgument(text) from None
