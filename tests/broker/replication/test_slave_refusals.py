"""What a slave rejects, and with which code."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.broker.replication.slave_refusals import refused_on_a_slave
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode

CONNECTION: Any = None


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.SINK_PUBLISH, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.POP_MESSAGE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_refused(code: RequestCode, answer: ResponseCode) -> None:
    handler = refused_on_a_slave()[int(code)]
    with pytest.raises(RemoteError, match="this broker is a slave") as refusal:
        handler(CONNECTION, RemotingCommand(code))
    assert refusal.value.code == answer


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET])
def test_reads_and_commits_are_served(code: RequestCode) -> None:
    assert int(code) not in refused_on_a_slave()
