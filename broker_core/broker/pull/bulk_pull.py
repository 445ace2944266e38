"""BULK_PULL: a pull without a filter for our own client, whose answer may fill a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.broker.pull.processor import Pull, PullMessageProcessor
from broker_core.broker.request_fields import optional_number, required_number, required_text
from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TOOLS_GROUP
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

# Reading this much blocks the event loop for a few milliseconds.
BULK_SIZE_MAX: Final = 8 << 20
BULK_SIZE_DEFAULT: Final = 4 << 20
BULK_COUNT_MAX: Final = 1 << 20
_HEADER_ROOM: Final = 64 << 10


class BulkPullProcessor:
    """Checks, reads and waits through the ordinary pull processor."""

    def __init__(self, *, pulls: PullMessageProcessor, frame_size_max: int) -> None:
        self._pulls = pulls
        self._size_max = min(BULK_SIZE_MAX, frame_size_max - _HEADER_ROOM)

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.BULK_PULL: self._pulls.with_group(self._pull, TOOLS_GROUP)}

    def _pull(self, connection: Connection, command: RemotingCommand) -> None:
        ext = command.ext
        group = ext.get("consumerGroup") or TOOLS_GROUP
        topic = required_text(ext, "topic")
        queue_id = required_number(ext, "queueId", 0, I32_MAX)
        config, _ = self._pulls.readable(group, topic, queue_id)
        pull = Pull(
            group,
            topic,
            queue_id,
            required_number(ext, "offset"),
            min(optional_number(ext, "maxCount", BULK_COUNT_MAX, 1, I32_MAX), BULK_COUNT_MAX),
            min(optional_number(ext, "maxBytes", BULK_SIZE_DEFAULT, 1, I32_MAX), self._size_max),
            None,
            config.broker_id,
            slow_broker_id=config.broker_id_when_slow,
            verify=ext.get("verify") != "false",
        )
        suspend_ms = optional_number(ext, "suspendTimeoutMillis", 0, 0, I32_MAX)
        self._pulls.serve(connection, command, pull, suspend_ms)
