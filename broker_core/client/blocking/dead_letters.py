"""`SyncDeadLetters`."""

from __future__ import annotations

from broker_core.client.blocking.face import SyncFace, client_config, waits
from broker_core.client.connection.config import ClientConfig
from broker_core.client.dead_letters.dead_letters import DeadLetters


class SyncDeadLetters(SyncFace[DeadLetters]):
    """`DeadLetters` with calls that wait. Any thread may call it."""

    def __init__(self, config: ClientConfig | str) -> None:
        config = client_config(config)
        super().__init__(config, DeadLetters(config))

    topics = waits(DeadLetters.topics)
    read = waits(DeadLetters.read)
    replay = waits(DeadLetters.replay)
