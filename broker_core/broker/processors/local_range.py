"""LOCAL_RANGE: how a reader on this host may read a queue from the broker's own files.

Answered to loopback peers only; that alone proves nothing, so the reader compares identity, epoch
and machine with what it finds in the directory. Permissions of a pull apply, and those of the
operating system decide who can open the files.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from broker_core.broker.processors.pull_message import PullMessageProcessor
from broker_core.broker.request_fields import required_number, required_text
from broker_core.codec.local_range import local_range_fields
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import NoPermission
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.local_range import local_range
from broker_core.store.message_store import MessageStore

_I32_MAX: Final = (1 << 31) - 1


class LocalRangeProcessor:
    """Owner of nothing."""

    def __init__(self, *, store: MessageStore, pulls: PullMessageProcessor, directory: str) -> None:
        self._store = store
        self._pulls = pulls
        self._directory = directory

    def handlers(self) -> Mapping[int, Handler]:
        """Codes -> methods."""
        return {RequestCode.LOCAL_RANGE: self._range}

    def _range(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        if not is_loopback(connection):
            raise NoPermission(
                ResponseCode.NO_PERMISSION, "the store's files are read on its own host only"
            )
        ext = command.ext
        group = ext.get("consumerGroup") or "TOOLS_CONSUMER"
        topic = required_text(ext, "topic")
        queue_id = required_number(ext, "queueId", 0, _I32_MAX)
        self._pulls.readable(group, topic, queue_id)
        found = local_range(self._store, self._directory, topic, queue_id)
        return command.reply(ResponseCode.SUCCESS, None, local_range_fields(found))


def is_loopback(connection: Connection) -> bool:
    """Whether the peer has an address of this very host that nobody else can have."""
    try:
        return ipaddress.ip_address(connection.peer[0].partition("%")[0]).is_loopback
    except ValueError:
        return False
