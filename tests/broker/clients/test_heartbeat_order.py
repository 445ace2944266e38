"""A heartbeat that waits for new groups does not re-register a group that its client left
meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from tests.broker.running_broker import broker_config, running


def test_a_consumer_that_leaves_at_once_is_gone(
    tmp_path: Path, run_async: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            consumers = tuple(
                ConsumerData(group, subscriptions=(SubscriptionData("T", version=1),))
                for group in ("leaves", "stays")
            )
            beat = encode_heartbeat(HeartbeatData("c", ("P", "stays"), consumers))
            connection = await asker.client.connect(asker.broker.address, 10_000)
            # One write: the second is worked on while the groups are on their way to the disk.
            asked = [
                connection.begin_request(RemotingCommand(RequestCode.HEART_BEAT, {}, beat), 60_000),
                connection.begin_request(
                    RemotingCommand(
                        RequestCode.UNREGISTER_CLIENT,
                        {"clientID": "c", "consumerGroup": "leaves", "producerGroup": "stays"},
                    ),
                    60_000,
                ),
            ]
            assert [answer.code for answer in await asyncio.gather(*asked)] == [0, 0]
            clients = asker.broker.context.clients
            assert clients.consumers("leaves") is None
            assert clients.consumers("stays") is not None
            assert (clients.consumer_ids("stays"), clients.consumer_ids("leaves")) == (["c"], [])

    run_async(scenario())
