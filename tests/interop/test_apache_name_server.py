"""Our broker with Apache's own name server: routes at once, deletion, goodbye, and its return."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.admin.admin import Admin
from broker_core.client.produce.producer import Producer
from broker_core.codec.wire.remoting_command import RemotingCommand
from tests.broker.running_broker import broker_config, running
from tests.interop.consumer_ground import patient_config
from tests.interop.java_broker import SERVER_VERSIONS
from tests.interop.java_name_server import JavaNameServer

VERSIONS = SERVER_VERSIONS if os.environ.get("RMQ_INTEROP_ALL") else SERVER_VERSIONS[-1:]


@pytest.mark.parametrize("version", VERSIONS)
def test_our_broker_is_known_to_it(
    run_async: Callable[..., Any], tmp_path: Path, version: str
) -> None:
    async def scenario() -> None:
        server = JavaNameServer(version, tmp_path / "name-server")
        await server.start()
        config = patient_config(server.address)
        try:
            async with running(broker_config(tmp_path / "a", namesrvAddr=server.address)) as asker:
                await asker.make_topic("Made", queues=3)
                async with Producer(config, "PG") as producer:
                    # Through the route of TBW102, as unmodified producers do it.
                    result = await producer.send("ByItself", b"x")
                    assert result.queue.broker_name == "broker-a"
                    admin = Admin(producer.client)
                    # A topic that a send made is told to name servers after the send's answer.
                    while not {"Made", "ByItself", "TBW102"} <= set(await admin.topics()):
                        pass
                    route = await admin.route("Made")
                    assert route.queues[0].read_queue_count == 3
                    assert route.brokers[0].addresses[0] == asker.broker.address
                    await admin.delete_topic("Made")
                    assert "Made" not in await admin.topics()
            # The broker has said goodbye.
            async with running(broker_config(tmp_path / "b")) as stranger:
                command = RemotingCommand(105, {"topic": "ByItself"})
                answer = await stranger.client.request(server.address, command, 60_000)
                assert answer.code == 17
        finally:
            await server.kill()

    run_async(scenario(), limit_s=300)
