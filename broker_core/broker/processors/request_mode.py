"""SET_MESSAGE_REQUEST_MODE: whether a group pulls or pops the messages of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.broker.request_fields import checked_group
from broker_core.broker.request_modes import POP, RequestModes, parse_mode
from broker_core.broker.topic_table import TopicTable
from broker_core.codec.json_dialect import parse_json
from broker_core.codec.json_fields import object_field, text_field
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import InvalidArgument, TopicNotExist
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler


class RequestModeProcessor:
    """Changes `modes`; members learn of it when they ask for their queues next."""

    def __init__(self, *, topics: TopicTable, modes: RequestModes) -> None:
        self._topics = topics
        self._modes = modes

    def handlers(self) -> Mapping[int, Handler]:
        """What each request code is answered by."""
        return {RequestCode.SET_MESSAGE_REQUEST_MODE: self._set}

    def _set(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = object_field({"body": parse_json(command.body)}, "body")
        topic = text_field(found, "topic")
        group = checked_group(text_field(found, "consumerGroup"))
        mode = parse_mode(found)
        if self._topics.find(topic) is None:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {topic[:255]} does not exist in this broker"
            )
        if mode.mode == POP and topic.startswith(RETRY_TOPIC_PREFIX):
            raise InvalidArgument("the retry topic of a group is pulled: set the mode of its topic")
        self._modes.set(topic, group, mode)
        return command.reply()
