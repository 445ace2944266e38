"""Our own requests for our own client: megabytes of records at once, in either direction.

CAPABILITIES   what this broker can do beyond Apache's, and which log it has
BULK_PULL      a pull without filter whose answer may fill a frame
BULK_SEND      a batch for one queue that may be larger than one message
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final

from broker_core.broker.broker_stats import BrokerStats
from broker_core.broker.log_identity import LogIdentity
from broker_core.broker.processors.local_range import is_loopback
from broker_core.broker.processors.pull_message import Pull, PullMessageProcessor
from broker_core.broker.processors.send_message import born_host
from broker_core.broker.request_fields import optional_number, required_number, required_text
from broker_core.broker.send_plan import SendPlanner, append_batches, merged
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.send_request import SendRequest
from broker_core.protocol_codes import PutStatus, RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore
from broker_core.store.put_result import PutResult

_I32_MAX: Final = (1 << 31) - 1
# The event loop serves nobody else while this much is gathered: a few milliseconds.
BULK_SIZE_MAX: Final = 8 << 20
BULK_SIZE_DEFAULT: Final = 4 << 20
BULK_COUNT_MAX: Final = 1 << 20
_HEADER_ROOM: Final = 64 << 10
# In a request for capabilities: a master has this epoch and the place of whom it asks.
NEWER_MASTER: Final = "newerMaster"


class BulkTransferProcessor:
    """Owner of nothing; pulls and plans are those of the ordinary requests."""

    def __init__(
        self,
        *,
        store: MessageStore,
        pulls: PullMessageProcessor,
        planner: SendPlanner,
        stats: BrokerStats,
        clock: Clock,
        frame_size_max: int,
        identity: LogIdentity,
        of_replication: Callable[[], Mapping[str, str]] = dict,
        newer_master: Callable[[int], object] = lambda epoch: None,
    ) -> None:
        self._of_replication = of_replication
        self._newer_master = newer_master
        self._identity = identity
        self._store = store
        self._pulls = pulls
        self._planner = planner
        self._stats = stats
        self._clock = clock
        self._frame_size_max = frame_size_max
        self._random = Random()

    def handlers(self) -> Mapping[int, Handler]:
        """Codes -> methods."""
        return {
            RequestCode.CAPABILITIES: self._capabilities,
            RequestCode.BULK_PULL: self._pull,
            RequestCode.BULK_SEND: self._send,
        }

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
        run = command.ext.get("run")
        if run is not None:
            shown = self._store.replication
            # Empty: which run is it now.
            fields["run"] = self._identity.run_at(shown.visible_position)
            if run:
                answer = self._identity.has_run(run, is_sure=not shown.waits_to_show)
                fields["hasRun"] = answer.value
        if is_loopback(connection):
            fields["localReads"] = "1"
        epoch = command.ext.get(NEWER_MASTER, "")
        if epoch.isascii() and epoch.isdigit():
            # Only a reason to look for oneself: anybody can say so.
            self._newer_master(int(epoch[:20]))
        return command.reply(ResponseCode.SUCCESS, None, fields)

    def _pull(self, connection: Connection, command: RemotingCommand) -> None:
        ext = command.ext
        group = ext.get("consumerGroup") or "TOOLS_CONSUMER"
        topic = required_text(ext, "topic")
        queue_id = required_number(ext, "queueId", 0, _I32_MAX)
        config, _ = self._pulls.readable(group, topic, queue_id)
        size_max = min(BULK_SIZE_MAX, self._frame_size_max - _HEADER_ROOM)
        pull = Pull(
            group,
            topic,
            queue_id,
            required_number(ext, "offset"),
            min(optional_number(ext, "maxCount", BULK_COUNT_MAX, 1, _I32_MAX), BULK_COUNT_MAX),
            min(optional_number(ext, "maxBytes", BULK_SIZE_DEFAULT, 1, _I32_MAX), size_max),
            None,
            config.broker_id,
            slow_broker_id=config.broker_id_when_slow,
        )
        suspend_ms = optional_number(ext, "suspendTimeoutMillis", 0, 0, _I32_MAX)
        self._pulls.serve(connection, command, pull, suspend_ms)

    def _send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        ext = command.ext
        request = SendRequest(
            required_text(ext, "producerGroup"),
            required_text(ext, "topic"),
            ext.get("defaultTopic", ""),
            optional_number(ext, "defaultTopicQueueNums", 4, 1, _I32_MAX),
            optional_number(ext, "queueId", -1, -1, _I32_MAX),
            optional_number(ext, "sysFlag", 0, 0, _I32_MAX),
            optional_number(ext, "bornTimestamp", self._clock.wall_ms(), 0),
            0,
        )
        queue_id, batches = self._planner.plan_bulk(request, command.body, self._random)
        results = append_batches(self._store, batches, born_host(connection), together=False)
        result = merged(results)
        if result.status is not PutStatus.PUT_OK:
            return command.reply(result.status.response_code, result.remark)
        size = result.end_position - result.position
        self._stats.put(request.topic, result.message_count, size)
        answer = partial(self._answer, connection, command, queue_id, result)
        self._store.when_acknowledged(result, answer)
        return None

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        queue_id: int,
        result: PutResult,
        status: PutStatus,
    ) -> None:
        fields = {
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
            "count": str(result.message_count),
        }
        remark = None if status is PutStatus.PUT_OK else status.name
        connection.send(command.reply(status.response_code, remark, fields))
