"""The table of groups that pop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.broker.tables.request_modes import MODES_FILE, POP, PULL, RequestMode, RequestModes
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.wire.bodies.heartbeat_data import ConsumerData, HeartbeatData
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.errors import StoreUnusable
from broker_core.protocol_codes import LanguageCode, RequestCode
from broker_core.storage.files.json_table import JsonTable
from tests.broker.admin_broker import AdminBroker
from tests.broker.broker_tables import OpenConnection


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker()
    asked.topics.put(TopicConfig("T", 4, 4))
    asked.topics.put(TopicConfig("WriteOnly", 4, 4, perm=2))
    for name in ("a", "b"):
        beat = HeartbeatData(name, (), (ConsumerData("g"),))
        asked.clients.heartbeat(OpenConnection(), beat, LanguageCode.JAVA, 0)
    yield asked
    asked.close()


def popping(broker: AdminBroker, shared: int, mode: str = "POP") -> None:
    asked = {"topic": "T", "consumerGroup": "g", "mode": mode, "popShareQueueNum": shared}
    assert broker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, emit_json(asked)).code == 0


def test_modes_survive(broker: AdminBroker) -> None:
    popping(broker, 2)
    again = RequestModes(JsonTable(broker.disk, MODES_FILE))
    assert again.find("T", "g") == RequestMode(POP, 2)
    assert again.find("T", "other") == again.find("U", "g") == RequestMode(PULL, 0)
    stored = JsonTable(broker.disk, MODES_FILE).load()
    assert stored == {
        "messageRequestModeMap": {
            "T": {"g": {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2, "topic": "T"}}
        }
    }


@pytest.mark.parametrize(
    "stored",
    [
        {"messageRequestModeMap": 7},
        {"messageRequestModeMap": {"T": {"g": {"mode": "PUSH"}}}},
        {"messageRequestModeMap": {"T": {"g": {"mode": "POP", "popShareQueueNum": "x"}}}},
    ],
)
def test_a_wrong_table_of_modes_stops_the_start(broker: AdminBroker, stored: Any) -> None:
    table = JsonTable(broker.disk, MODES_FILE)
    table.save(stored)
    with pytest.raises(StoreUnusable, match="messageRequestMode"):
        RequestModes(table)
