"""TOPIC_ENDS: the durable ends of all queues of a topic, in one answer.

A stream asks once per batch, for any number of queues. The answer has the identity of the log and
the run that wrote the last of these messages. The next request sends that run back, and the answer
says whether the log still has it (`LogIdentity.has_run`). If not, it also says up to which offset
of each queue the two logs are the same, if the runs that the reader names show that
(`LogIdentity.agreed_end`). With ASYNC_FLUSH the broker syncs visible messages before it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker_core.broker.pull.processor import PullMessageProcessor
from broker_core.broker.request_fields import required_text
from broker_core.broker.tables.log_identity import LogIdentity
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TOOLS_GROUP
from broker_core.protocol_codes import RequestCode, ResponseCode, RunAnswer
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

# A search takes about 40 us for each queue.
COMPARED_QUEUES_MAX: Final = 4_096


class TopicEndsProcessor:
    """Event loop only."""

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
        return {RequestCode.TOPIC_ENDS: self._pulls.with_group(self._ends, TOOLS_GROUP)}

    def _ends(self, connection: Connection, command: RemotingCommand) -> None:
        group = command.ext.get("consumerGroup") or TOOLS_GROUP
        topic = required_text(command.ext, "topic")
        _, config = self._pulls.readable(group, topic, 0)
        visible = [
            self._store.offsets(topic, queue_id)[1] for queue_id in range(config.read_queue_count)
        ]
        self._store.reads.when_visible_is_durable(
            partial(self._answer, connection, command, topic, visible)
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
            # The disk failed: what it has can still be read.
            visible = [
                min(end, self._store.durable_offset(topic, queue_id))
                for queue_id, end in enumerate(visible)
            ]
        is_behind = self._is_slave or self._store.replication.waits_to_show()
        fields = {
            "ends": ",".join(map(str, visible)),
            "storeId": self._identity.store_id,
            "epoch": self._identity.epoch,
        }
        position = self._log_position(topic, visible)
        fields["run"] = self._identity.run_at(position)
        fields["runs"] = self._identity.runs_until(position)
        if run := command.ext.get("run"):
            answer = self._identity.has_run(run, is_sure=not is_behind)
            fields["hasRun"] = answer.value
            agreed = self._identity.agreed_end(run, command.ext.get("runs", ""))
            if (
                answer is RunAnswer.LACKS
                and agreed is not None
                and len(visible) <= COMPARED_QUEUES_MAX
            ):
                same = (
                    self._offset_at(topic, queue_id, agreed) for queue_id in range(len(visible))
                )
                fields["same"] = ",".join(map(str, same))
        if is_behind:
            # Lower ends are no loss here: another broker may have more messages than this one.
            fields["slave"] = "1"
        connection.send(command.reply(ResponseCode.SUCCESS, None, fields))

    def _offset_at(self, topic: str, queue_id: int, position: int) -> int:
        """The first offset of a queue whose message is at a log position or after it."""
        low, high = self._store.offsets(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            units = self._store.units(topic, queue_id, middle, 1)
            if units and units[0][0] >= position:
                high = middle
            else:
                low = middle + 1
        return low

    def _log_position(self, topic: str, ends: list[int]) -> int:
        """Where the last of these messages ends in the log; the log start for removed ones."""
        position = 0
        for queue_id, end in enumerate(ends):
            if end:
                units = self._store.units(topic, queue_id, end - 1, 1)
                found = units[0][0] + units[0][1] if units else self._store.log_range[0]
                position = max(position, found)
        return position
