"""SET_MESSAGE_REQUEST_MODE: how a group gets its messages. Here every group pulls."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.request_fields import checked_group
from broker_core.broker.topic_table import TopicTable
from broker_core.codec.json_dialect import parse_json
from broker_core.codec.json_fields import object_field, text_field
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, TopicNotExist
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler


class RequestModeProcessor:
    """Takes what is so already and refuses what cannot be."""

    def __init__(self, *, topics: TopicTable) -> None:
        self._topics = topics

    def handlers(self) -> Mapping[int, Handler]:
        """What each request code is answered by."""
        return {RequestCode.SET_MESSAGE_REQUEST_MODE: self._set}

    def _set(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = object_field({"body": parse_json(command.body)}, "body")
        topic = text_field(found, "topic")
        checked_group(text_field(found, "consumerGroup"))
        mode = text_field(found, "mode", "PULL")
        if self._topics.find(topic) is None:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {topic[:255]} does not exist in this broker"
            )
        if mode != "PULL":
            raise InvalidArgument(f"mode {mode[:20]!r}: this broker serves PULL only")
        return command.reply()
