"""RESUME_CHECK_HALF_MESSAGE: reopens a given-up transaction, so that checks begin again.

The copy for operators becomes a half message again, with a check count of 0. Only such a copy is
accepted: any other record would become a new message.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.request_fields import required_text
from broker_core.broker.transactions.half_message import HALF_QUEUE, read_half
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_properties import change_properties
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TRANSACTION_GIVEN_UP_TOPIC, TRANSACTION_HALF_TOPIC
from broker_core.errors import CorruptRecord, InvalidArgument, MalformedRecord
from broker_core.protocol_codes import PutStatus, RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore


class ReopenGivenUpProcessor:
    """Event loop only."""

    def __init__(self, *, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume}

    async def _resume(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        message_id = required_text(command.ext, "msgId")
        position = decode_message_id(message_id)[1]
        try:
            record = self._store.message_at(position)
        except CorruptRecord:
            # The position may be made up.
            record = None
        if record is None or record.topic != TRANSACTION_GIVEN_UP_TOPIC:
            raise InvalidArgument(
                f"{message_id[:60]} is not a message of {TRANSACTION_GIVEN_UP_TOPIC}"
            )
        try:
            read_half(record)
        except MalformedRecord as error:
            raise InvalidArgument(f"{message_id[:60]} cannot be resumed: {error}") from None
        text = change_properties(
            record.property_text,
            {names.TRANSACTION_CHECK_TIMES: "", names.TRANSACTION_PREPARED_QUEUE_OFFSET: ""},
        )
        result = await self._store.acknowledged(
            self._store.append_text(
                TRANSACTION_HALF_TOPIC,
                HALF_QUEUE,
                record.body,
                text,
                record.flag,
                record.sys_flag,
                max(record.born_timestamp, 0),
                encode_host(record.born_host),
            )
        )
        if result.status is not PutStatus.PUT_OK:
            return command.reply(result.status.response_code, result.remark)
        return command.reply()
