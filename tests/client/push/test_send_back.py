"""Failed messages go back to a broker, or as a copy."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.types import (
    ConsumeContext,
    ConsumeStatus,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from tests.client.push.consuming_stage import Run, Stage, play
from tests.client.queue_broker import QUEUE
from tests.remoting.peers import until


def test_a_record_that_is_gone_is_sent_as_a_copy(run_async: Run) -> None:
    """The broker cannot copy what has expired."""
    sent: list[RemotingCommand] = []

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> object:
        return ConsumeStatus.LATER

    async def work(stage: Stage) -> None:
        def take(command: RemotingCommand) -> RemotingCommand:
            sent.append(command)
            ext = {"msgId": "0A", "queueId": "0", "queueOffset": "0"}
            return command.reply(ext=ext)

        routes = stage.consumption._send_back._client.routes
        routes._templates["%RETRY%G"] = (QUEUE._replace(topic="%RETRY%G"),)
        stage.broker.handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = lambda c: c.reply(1, "gone")
        stage.broker.handlers[RequestCode.SEND_MESSAGE_V2] = take
        stage.give(0)
        await until(lambda: stage.progress == 1)
        [command] = sent
        assert (command.ext["b"], command.ext["j"], command.ext["l"]) == ("%RETRY%G", "1", "16")
        assert bytes(command.body) == b"m0"
        assert "RETRY_TOPIC\x01T\x02" in command.ext["i"]
        assert "DELAY\x013\x02" in command.ext["i"]

    play(run_async, listen, work)
