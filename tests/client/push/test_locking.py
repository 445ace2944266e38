"""Queue locks at several brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.client.push.locking import QueueLocking
from broker_core.codec.wire.bodies.message_queue import MessageQueue, encode_locked_queues
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost
from broker_core.protocol_codes import RequestCode

Run = Callable[..., Any]
A0, A1 = (MessageQueue("T", "a", number) for number in range(2))
B0, C0 = MessageQueue("T", "b", 0), MessageQueue("T", "c", 0)


class Client:
    """Grants the queues of `granted`; broker c is down."""

    client_id = "id"

    def __init__(self, *granted: MessageQueue) -> None:
        self.granted = granted
        self.asked: list[tuple[str, int]] = []

    async def ask_broker(self, name: str, command: RemotingCommand, timeout_ms: float) -> Any:
        self.asked.append((name, command.code))
        if name == "c":
            raise ConnectionLost("down")
        return RemotingCommand(0, {}, encode_locked_queues(self.granted))


def test_each_broker_is_asked_once(run_async: Run) -> None:
    async def scenario() -> None:
        client: Any = Client(A0, B0)
        granted, refused = await QueueLocking(client, "g").lock([A0, A1, B0, C0])
        assert granted == {A0, B0}
        assert refused == {A1}, "a broker that does not answer refuses nothing"
        code = RequestCode.LOCK_BATCH_MQ
        assert sorted(client.asked) == [("a", code), ("b", code), ("c", code)]

    run_async(scenario())


def test_a_queue_that_was_not_asked_for_is_not_granted(run_async: Run) -> None:
    async def scenario() -> None:
        client: Any = Client(A0, A1)
        assert await QueueLocking(client, "g").lock([A0]) == ({A0}, frozenset())

    run_async(scenario())


def test_a_release_that_fails_is_only_logged(run_async: Run) -> None:
    async def scenario() -> None:
        client: Any = Client()
        await QueueLocking(client, "g").unlock([A0, C0])
        code = RequestCode.UNLOCK_BATCH_MQ
        assert sorted(client.asked) == [("a", code), ("c", code)]

    run_async(scenario())
