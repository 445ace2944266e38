"""Tables on a simulated disk, and connections that only remember what was sent on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.broker.tables.group_table import GROUPS_FILE, GroupTable
from broker_core.broker.tables.offset_table import OFFSETS_FILE, OffsetTable
from broker_core.broker.tables.topic_table import TOPICS_FILE, TopicTable
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost
from broker_core.remoting.request_dispatch import Handler
from broker_core.storage.files.json_table import JsonTable
from tests.fakes.simulated_disk import SimulatedDisk


def topic_table(disk: SimulatedDisk, **settings: Any) -> TopicTable:
    """The topics on a disk."""
    return TopicTable(JsonTable(disk, TOPICS_FILE), disk.clock, **settings)


def group_table(disk: SimulatedDisk, **settings: Any) -> GroupTable:
    """The groups on a disk."""
    return GroupTable(JsonTable(disk, GROUPS_FILE), disk.clock, **settings)


def offset_table(disk: SimulatedDisk, end: int = 1_000_000, **settings: Any) -> OffsetTable:
    """The offsets on a disk; every queue ends at `end`."""
    settings.setdefault("end_offset", lambda _topic, _queue_id: end)
    return OffsetTable(JsonTable(disk, OFFSETS_FILE), disk.clock, **settings)


class OpenConnection:
    """What tables and processors use of a connection."""

    def __init__(self, port: int = 50_000) -> None:
        self.attributes: dict[str, Any] = {}
        self.callbacks: list[Callable[[Any], object]] = []
        self.sent: list[RemotingCommand] = []
        self.peer = ("10.0.0.9", port)
        self.peer_text = f"10.0.0.9:{port}"
        self.is_closed = False
        self.is_writable = True
        self.close_reason = ""

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    def oneway(self, command: RemotingCommand) -> None:
        if self.is_closed:
            raise ConnectionLost("closed")
        self.sent.append(command)

    def close(self, reason: str = "") -> None:
        self.close_reason = reason
        self.end()

    def end(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            for callback in self.callbacks:
                callback(self)

    def notices(self) -> list[str]:
        """Take the groups that this peer was notified about."""
        assert all(command.code == 40 for command in self.sent)
        told = [command.ext["consumerGroup"] for command in self.sent]
        self.sent.clear()
        return told


def ask(
    handlers: Any, code: int, connection: Any = None, body: bytes = b"", flag: int = 0, **ext: str
) -> RemotingCommand:
    """The answer of the handler of `code`."""
    handler: Handler = handlers[code]
    request = RemotingCommand(code, ext, body, opaque=7, flag=flag)
    answer = handler(connection or OpenConnection(), request)
    assert isinstance(answer, RemotingCommand)
    assert answer.is_response
    assert answer.opaque == 7
    return answer
