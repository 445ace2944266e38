"""LOCAL_RANGE: lets a reader on this host read a queue from the broker's files.

Answered to loopback peers only. The reader also compares identity, epoch and machine with those in
the directory, since a loopback address proves little. The permissions of a pull apply; the
operating system decides who can open the files.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.client_address import is_loopback
from broker_core.broker.pull.processor import PullMessageProcessor
from broker_core.broker.request_fields import required_number, required_text
from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.wire.bodies.local_range import local_range_fields
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TOOLS_GROUP
from broker_core.errors import NoPermission
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore


class LocalRangeProcessor:
    """Event loop only."""

    def __init__(self, *, store: MessageStore, pulls: PullMessageProcessor, directory: str) -> None:
        self._store = store
        self._pulls = pulls
        self._directory = directory

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.LOCAL_RANGE: self._pulls.with_group(self._range, TOOLS_GROUP)}

    def _range(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        if not is_loopback(connection):
            raise NoPermission(
                ResponseCode.NO_PERMISSION, "the store's files are read on its own host only"
            )
        ext = command.ext
        group = ext.get("consumerGroup") or TOOLS_GROUP
        topic = required_text(ext, "topic")
        queue_id = required_number(ext, "queueId", 0, I32_MAX)
        self._pulls.readable(group, topic, queue_id)
        found = self._store.reads.local_range(self._directory, topic, queue_id)
        return command.reply(ResponseCode.SUCCESS, None, local_range_fields(found))
