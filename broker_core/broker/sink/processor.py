"""Request handlers of the exactly-once sink.

STAGE_BEGIN    ext sinkId, batchId, runId, lineage?, once?   -> stagingId, bornHost, storeHostSize,
                                                                root?, storeId?, bootId?,
                                                                expiryMs? (only to clients on this
                                                                machine)
STAGE_APPEND   ext stagingId, index; body: one block         -> count
               ext stagingId, size: reserve room in a file that the client writes itself; with
               the size of before: only renew the drafts of the batch
STAGE_SEAL     ext stagingId                                 -> count, size, checksum
               ext stagingId, count, size, checksum: seal a file that the client wrote itself
STAGE_DROP     body: staging ids                             -> dropped
SINK_PUBLISH   body: publication                             -> body: offsets of the batch
SINK_STATUS    ext sinkId                                    -> body: the last batch
STAGE_RENEW    ext sinkId, batchId, runId                    -> renewed, expiryMs: a task of the
                                                                batch is still at work
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.broker.client_address import born_host, is_loopback
from broker_core.broker.request_fields import optional_flag, required_number, required_text
from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.sink.publisher import SinkPublisher
from broker_core.broker.sink.staging import SinkStaging
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    BatchIdentity,
    checked_name,
    encode_publish_answer,
    encode_status,
    parse_block,
    parse_ids,
    parse_publication,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import NoPermission
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

_BLOCKS_MAX: Final = 1 << 31


class SinkPublishProcessor:
    """Reads requests and writes answers; has no state of its own."""

    def __init__(
        self,
        *,
        store: MessageStore,
        batches: SinkBatches,
        staging: SinkStaging,
        publisher: SinkPublisher,
        local_root: str = "",
    ) -> None:
        """`local_root` is the store's directory if clients on this machine may write there."""
        self._local_root = local_root
        self._store = store
        self._batches = batches
        self._staging = staging
        self._publisher = publisher

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.STAGE_BEGIN: self._begin,
            RequestCode.STAGE_APPEND: self._append,
            RequestCode.STAGE_SEAL: self._seal,
            RequestCode.STAGE_DROP: self._drop,
            RequestCode.SINK_PUBLISH: self._publish,
            RequestCode.SINK_STATUS: self._status,
            RequestCode.STAGE_RENEW: self._renew,
        }

    async def _begin(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        identity = _identity(ext)
        await self._publisher.announce(identity)
        fields = {
            "stagingId": self._staging.begin(identity),
            "bornHost": born_host(connection).hex(),
            "storeHostSize": str(len(self._store.store_host)),
        }
        if self._offers_files(connection):
            # The writer compares both with what it finds there before it writes anything.
            fields |= {"root": self._local_root, "storeId": self._store.store_id}
            fields["bootId"] = self._store.boot_id
            # Its appends do not come here, so it says from time to time that it is still at work.
            fields["expiryMs"] = f"{self._staging.idle_ms(identity):.0f}"
        return command.reply(ResponseCode.SUCCESS, None, fields)

    def _append(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        if "size" in ext:
            self._check_offered(connection, "STAGE_APPEND with a size")
            staging_id, size = required_text(ext, "stagingId"), required_number(ext, "size", 0)
            before = self._staging.grow(staging_id, size)
            if size > before:
                # It asks for more when the room that it reserved before is full.
                self._publisher.written(staging_id, before)
            return command.reply(ResponseCode.SUCCESS)
        queues, records = parse_block(command.body)
        index = required_number(ext, "index", 0, _BLOCKS_MAX)
        count = self._staging.append(required_text(ext, "stagingId"), index, queues, records)
        return command.reply(ResponseCode.SUCCESS, None, {"count": str(count)})

    def _seal(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        staging_id = required_text(ext, "stagingId")
        if "count" in ext:
            self._check_offered(connection, "STAGE_SEAL with a count")
            count, size, checksum = (
                required_number(ext, name, 0) for name in ("count", "size", "checksum")
            )
            written = StagedPart(staging_id, count, size, checksum)
            part = self._staging.seal_written(written)
        else:
            part = self._staging.seal(staging_id)
        self._publisher.sealed(part)
        fields = {
            "count": str(part.record_count),
            "size": str(part.size),
            "checksum": str(part.checksum),
        }
        return command.reply(ResponseCode.SUCCESS, None, fields)

    def _renew(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        identity = _identity(command.ext)
        fields = {
            "renewed": str(self._staging.renew(identity)),
            "expiryMs": f"{self._staging.idle_ms(identity):.0f}",
        }
        return command.reply(ResponseCode.SUCCESS, None, fields)

    def _offers_files(self, connection: Connection) -> bool:
        return bool(self._local_root) and is_loopback(connection)

    def _check_offered(self, connection: Connection, form: str) -> None:
        """A reused file holds data of an earlier batch: only its writer knows where that begins."""
        if not self._offers_files(connection):
            raise NoPermission(
                ResponseCode.NO_PERMISSION,
                f"{form} is for writers of staging files, which this broker offers on its own "
                "host and without access control only: send the rows",
            )

    def _drop(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        dropped = self._publisher.abort(parse_ids(command.body))
        return command.reply(ResponseCode.SUCCESS, None, {"dropped": str(dropped)})

    async def _publish(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        answer = await self._publisher.publish(parse_publication(command.body))
        return command.reply(ResponseCode.SUCCESS, None, body=encode_publish_answer(answer))

    def _status(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        sink = checked_name(required_text(command.ext, "sinkId"), "sinkId")
        body = encode_status(self._batches.status(sink))
        return command.reply(ResponseCode.SUCCESS, None, body=body)


def _identity(ext: Mapping[str, str]) -> BatchIdentity:
    return BatchIdentity(
        checked_name(required_text(ext, "sinkId"), "sinkId"),
        required_number(ext, "batchId", 0),
        checked_name(required_text(ext, "runId"), "runId"),
        checked_name(ext.get("lineage", ""), "lineage", required=False),
        once=optional_flag(ext, "once", False),
        query=checked_name(ext.get("queryId", ""), "queryId", required=False),
    )
