"""TOPIC_ENDS: where all queues of a topic end, in one answer, and nothing that may still get lost.

A stream asks this for every batch, so it is one request whatever the number of queues, and it
brings the identity of the log along, with the run that wrote the last of these messages. The next
question brings that run back and is told whether the log still has it (`LogIdentity.has_run`). What
the answer names is durable: with ASYNC_FLUSH the broker syncs what is visible before it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from broker_core.broker.log_identity import LogIdentity
from broker_core.broker.processors.pull_message import PullMessageProcessor
from broker_core.broker.request_fields import required_text
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.durable_end import when_visible_is_durable
from broker_core.store.message_store import MessageStore


class TopicEndsProcessor:
    """Owner of nothing."""

    def __init__(
        self,
        *,
        store: MessageStore,
        pulls: PullMessageProcessor,
        identity: LogIdentity,
        is_slave: bool = False,
    ) -> None:
        self._store = store
        self._identity = identity
        self._is_slave = is_slave
        self._pulls = pulls

    def handlers(self) -> Mapping[int, Handler]:
        """Codes -> methods."""
        return {RequestCode.TOPIC_ENDS: self._ends}

    def _ends(self, connection: Connection, command: RemotingCommand) -> None:
        group = command.ext.get("consumerGroup") or "TOOLS_CONSUMER"
        topic = required_text(command.ext, "topic")
        _, config = self._pulls.readable(group, topic, 0)
        visible = [
            self._store.offsets(topic, queue_id)[1] for queue_id in range(config.read_queue_count)
        ]
        when_visible_is_durable(
            self._store, partial(self._answer, connection, command, topic, visible)
        )

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        topic: str,
        visible: list[int],
        failure: BaseException | None,
    ) -> None:
        if failure is not None:
            # A disk that failed: what it kept may still be read.
            visible = [
                min(end, self._store.durable_offset(topic, queue_id))
                for queue_id, end in enumerate(visible)
            ]
        is_behind = self._is_slave or self._store.replication.waits_to_show
        fields = {
            "ends": ",".join(map(str, visible)),
            "storeId": self._identity.store_id,
            "epoch": self._identity.epoch,
            "run": self._identity.run_at(self._log_position(topic, visible)),
        }
        if command.ext.get("run"):
            answer = self._identity.has_run(command.ext["run"], is_sure=not is_behind)
            fields["hasRun"] = answer.value
        if is_behind:
            # The master may have more; or a master has what only a slave showed so far, and ends
            # that are below what was read there are no loss.
            fields["slave"] = "1"
        connection.send(command.reply(ResponseCode.SUCCESS, None, fields))

    def _log_position(self, topic: str, ends: list[int]) -> int:
        """Where the last of these messages ends in the log; at its start for removed ones."""
        position = 0
        for queue_id, end in enumerate(ends):
            if end:
                units = self._store.units(topic, queue_id, end - 1, 1)
                found = units[0][0] + units[0][1] if units else self._store.log_range[0]
                position = max(position, found)
        return position
