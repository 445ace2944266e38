"""CAPABILITIES: what this broker can do beyond Apache's, and which log it has.

Our clients ask it before they use our requests; brokers of one name ask it about the master's log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker_core.broker.client_address import is_loopback
from broker_core.broker.tables.log_identity import LogIdentity
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

# Request field: the epoch of a master that has taken the place of the broker it asks.
NEWER_MASTER: Final = "newerMaster"


class CapabilitiesProcessor:
    """Event loop only. `newer_master(epoch)` is called when the asker claims a newer epoch."""

    def __init__(
        self,
        *,
        store: MessageStore,
        identity: LogIdentity,
        frame_size_max: int,
        sends_once: bool,
        of_replication: Callable[[], Mapping[str, str]],
        newer_master: Callable[[int], object],
    ) -> None:
        self._store = store
        self._identity = identity
        self._frame_size_max = frame_size_max
        self._sends_once = sends_once
        self._of_replication = of_replication
        self._newer_master = newer_master

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.CAPABILITIES: self._capabilities}

    def _capabilities(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        fields = {
            "bulkPull": "1",
            "bulkSend": "1",
            "sink": "1",
            "topicEnds": "1",
            "storeId": self._identity.store_id,
            "epoch": self._identity.epoch,
            "frameSizeMax": str(self._frame_size_max),
            **self._of_replication(),
        }
        if self._sends_once:
            fields["sendOnce"] = "1"
        run = command.ext.get("run")
        if run is not None:
            shown = self._store.replication
            # An empty field asks for the present run only.
            fields["run"] = self._identity.run_at(shown.visible_position())
            if run:
                answer = self._identity.has_run(run, is_sure=not shown.waits_to_show())
                fields["hasRun"] = answer.value
        if is_loopback(connection):
            fields["localReads"] = "1"
        epoch = command.ext.get(NEWER_MASTER, "")
        if epoch.isascii() and epoch.isdigit():
            # Any peer can claim this, so it only makes the broker look for itself.
            self._newer_master(int(epoch[:20]))
        return command.reply(ResponseCode.SUCCESS, None, fields)
