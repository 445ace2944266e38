"""Tells a member of a consumer group that the group changed: NOTIFY_CONSUMER_IDS_CHANGED."""

from __future__ import annotations

import logging

from broker_core.broker.group_table import GroupTable
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection

_log = logging.getLogger(__name__)


class MemberNotice:
    """The `notify` of a `ClientTable`. A notice that is lost costs time only: members look anew
    every 20 seconds."""

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups

    def __call__(self, connection: Connection, group: str) -> None:
        """Send the notice, unless the group's settings say no or the member does not read."""
        config = self._groups.find(group)
        if (config is not None and not config.notify_on_change) or not connection.is_writable:
            return
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        try:
            connection.oneway(RemotingCommand(code, {"consumerGroup": group}))
        except RmqError as error:
            _log.info("%s was not told that %s changed: %s", connection.peer_text, group, error)
