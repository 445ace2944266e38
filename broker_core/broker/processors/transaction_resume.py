"""RESUME_CHECK_HALF_MESSAGE: a transaction that was given up is asked about again.

The copy that was put aside for operators becomes a half message once more, with its checks counted
from nought. Only such copies can: anything else would make a message out of nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.half_message import HALF_QUEUE, read_half
from broker_core.broker.request_fields import required_text
from broker_core.broker.system_topics import TRANSACTION_GIVEN_UP_TOPIC, TRANSACTION_HALF_TOPIC
from broker_core.codec import message_properties as names
from broker_core.codec.host_address import encode_host
from broker_core.codec.message_id import decode_message_id
from broker_core.codec.message_properties import change_properties
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import CorruptRecord, InvalidArgument, MalformedRecord
from broker_core.protocol_codes import PutStatus, RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore


class TransactionResumeProcessor:
    """Stores half messages anew."""

    def __init__(self, *, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> Mapping[int, Handler]:
        """What each request code is answered by."""
        return {RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume}

    async def _resume(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        message_id = required_text(command.ext, "msgId")
        position = decode_message_id(message_id)[1]
        try:
            record = self._store.message_at(position)
        except CorruptRecord:
            # Any position may be asked for; few are where a message begins.
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
