"""Name server and broker on one loop: usable as soon as it reports that it serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.embedded.standalone_server import (
    STANDALONE_PROPERTIES,
    StandaloneServer,
    StandaloneSettings,
)


def settings(tmp_path: Path, **topics: int) -> StandaloneSettings:
    own = {"listenPort": "0", "storePathRootDir": str(tmp_path / "store")}
    config, unknown = BrokerConfig.from_properties({**STANDALONE_PROPERTIES, **own})
    assert not unknown
    return StandaloneSettings(config, topics=topics)


async def queue_counts(server: StandaloneServer, *topics: str) -> list[int]:
    async with ClientInstance(ClientConfig((server.name_server,))) as client:
        return [len(await client.routes.subscribe_queues(topic)) for topic in topics]


def test_topics_are_known_when_it_has_started(
    tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        first = StandaloneServer(settings(tmp_path, orders=3, wide=20))
        await first.start()
        assert await queue_counts(first, "orders", "wide") == [3, 20]
        await first.stop()
        # Topics of the store are registered before the start is done, without being asked for.
        for _ in range(5):
            again = StandaloneServer(settings(tmp_path))
            await again.start()
            assert await queue_counts(again, "orders", "wide") == [3, 20]
            await again.stop()

    run_async(scenario())


def test_a_restart_leaves_topics_as_they_are(tmp_path: Path, run_async: Callable[..., Any]) -> None:
    async def scenario() -> None:
        for wanted in (3, 5):
            server = StandaloneServer(settings(tmp_path, orders=wanted))
            await server.start()
            assert await queue_counts(server, "orders") == [3]
            await server.stop()
            await server.stop()

    run_async(scenario())
