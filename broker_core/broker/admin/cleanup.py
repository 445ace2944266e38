"""Clean-up on request: expired log and queue files, queues of deleted topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)


class CleanupProcessor:
    """Removes files of `store` that are no longer referenced."""

    def __init__(self, *, store: MessageStore, topics: TopicTable, offsets: OffsetTable) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self._unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._expired_log,
        }

    def _expired_queues(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        # Queue files are deleted with the log files that they point into. The queues stay: a
        # dropped queue would start at offset 0 again, and its groups would be ahead of it.
        self._store.clean()
        return command.reply()

    def _expired_log(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        start = self._store.clean(manual=True)
        _log.info("expired log files were deleted on request; the log starts at %d", start)
        return command.reply()

    def _unused_topics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        filled = set()
        for topic, queue_id in self._store.queues():
            low, end = self._store.offsets(topic, queue_id)
            if low < end:
                filled.add(topic)
        for topic in sorted(filled):
            if self._topics.find(topic) is not None or self._topics.is_system(topic):
                continue
            self._store.delete_topic(topic)
            self._offsets.remove_topic(topic)
            _log.info("queues of the deleted topic %s were removed on request", topic)
        return command.reply()
