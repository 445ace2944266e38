"""Offset resets to a time, an offset or another group's offsets, with and without members
online."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.codec.json.dialect import parse_json
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.message_queue import parse_queue_map
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.protocol_codes import LanguageCode, RequestCode, ResponseCode
from tests.broker.admin_broker import AdminBroker
from tests.broker.broker_tables import offset_table

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
CLONE = RequestCode.CLONE_GROUP_OFFSET


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker()
    asked.topics.put(TopicConfig("T", 2, 2))
    for name in ("g", "other"):
        asked.groups.put(GroupConfig(name))
    asked.put("T", 5, step_ms=1_000)
    asked.put("T", 2, queue_id=1)
    yield asked
    asked.close()


def targets(answer: Any) -> dict[int, int]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table = parse_queue_map(parse_json(answer.body)["offsetTable"])
    assert all(queue[:2] == ("T", "broker-a") for queue in table)
    return {queue.queue_id: offset for queue, offset in table.items()}


def test_an_idle_group_goes_to_a_time(broker: AdminBroker) -> None:
    broker.offsets.commit("g", "T", 0, 5)
    middle = broker.store.store_time("T", 0, 2)
    answer = broker.ask(RESET, topic="T", group="g", timestamp=str(middle), isForce="true")
    assert targets(answer) == {0: 2, 1: 0}
    assert (broker.offsets.query("g", "T", 0), broker.offsets.query("g", "T", 1)) == (2, 0)
    assert not broker.offsets.has_resets, "no member is online"
    assert b'{{"brokerName":"broker-a","queueId":0,"topic":"T"}:2,' in bytes(answer.body)


def test_the_end_and_the_beginning(broker: AdminBroker) -> None:
    assert targets(broker.ask(RESET, topic="T", group="g", timestamp="-1")) == {0: 5, 1: 2}
    assert targets(broker.ask(RESET, topic="T", group="g", timestamp="0")) == {0: 0, 1: 0}


def test_one_queue_to_one_offset(broker: AdminBroker) -> None:
    answer = broker.ask(
        RESET, topic="T", group="g", timestamp="-1", queueId="0", offset="3", isForce="true"
    )
    assert targets(answer) == {0: 3}
    assert broker.offsets.query("g", "T", 1) is None
    for queue, offset in (("0", "6"), ("2", "0"), ("0", "x"), ("-2", "0")):
        refused = broker.ask(RESET, topic="T", group="g", queueId=queue, offset=offset)
        assert refused.code == ResponseCode.INVALID_PARAMETER, (queue, offset)
    assert broker.offsets.query("g", "T", 0) == 3


def test_without_force_only_back(broker: AdminBroker) -> None:
    broker.offsets.commit("g", "T", 0, 3)
    answer = broker.ask(RESET, topic="T", group="g", timestamp="-1", isForce="false")
    assert targets(answer) == {0: 3, 1: 2}
    answer = broker.ask(RESET, topic="T", group="g", timestamp="0", isForce="false")
    assert targets(answer) == {0: 0, 1: 0}


def test_unknown_names(broker: AdminBroker) -> None:
    assert broker.ask(RESET, topic="X", group="g", timestamp="0").code == 17
    assert broker.ask(RESET, topic="T", group="X", timestamp="0").code == 26
    assert broker.ask(RESET, topic="T", timestamp="0").code == ResponseCode.INVALID_PARAMETER
    own = broker.ask(RESET, topic="T", group="CID_RMQ_SYS_TRANS", timestamp="0")
    assert own.code == ResponseCode.NO_PERMISSION


def test_members_are_notified_and_cannot_commit_older_offsets(broker: AdminBroker) -> None:
    member = broker.subscribe("g", "T")
    broker.offsets.commit("g", "T", 0, 5)
    broker.ask(RESET, topic="T", group="g", timestamp="0", isForce="true")
    [notice] = [command for command in member.sent if command.code == 220]
    assert notice.ext == {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
    assert notice.body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:0}}'
    )
    assert not broker.offsets.commit("g", "T", 0, 5)
    assert broker.offsets.take_reset("g", "T", 0, 5) == 0
    assert not broker.offsets.commit("g", "T", 0, 5)
    assert broker.offsets.take_reset("g", "T", 0, 0) is None
    assert broker.offsets.commit("g", "T", 0, 1)


def test_a_member_that_is_gone_stops_nothing(broker: AdminBroker) -> None:
    member = broker.subscribe("g", "T")
    member.is_closed = True
    assert targets(broker.ask(RESET, topic="T", group="g", timestamp="0")) == {0: 0, 1: 0}


def test_clients_in_cpp_get_a_list(broker: AdminBroker) -> None:
    member = broker.subscribe("g", "T")
    group = broker.clients.consumers("g")
    assert group is not None
    group.members[member].language = LanguageCode.CPP  # type: ignore[index]
    broker.ask(RESET, topic="T", group="g", timestamp="-1", queueId="1")
    assert member.sent[-1].body == (
        b'{"offsetTable":[{"brokerName":"broker-a","queueId":1,"topic":"T","offset":2}]}'
    )


def test_clone(broker: AdminBroker) -> None:
    broker.offsets.commit("g", "T", 0, 4)
    broker.offsets.commit("g", "T", 1, 1)
    broker.offsets.commit("other", "T", 0, 5)
    assert broker.ask(CLONE, srcGroup="g", destGroup="other").code == 0
    assert broker.offsets.queues_of("other", "T") == {0: 4, 1: 1}, "back, too"
    assert broker.ask(CLONE, srcGroup="g", destGroup="other", topic="T").code == 0
    assert broker.ask(CLONE, srcGroup="g", destGroup="other", topic="X").code == 17
    assert broker.ask(CLONE, srcGroup="X", destGroup="other").code == 26
    broker.subscribe("other", "T")
    refused = broker.ask(CLONE, srcGroup="g", destGroup="other")
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "online" in (refused.remark or "")


def test_clone_gives_a_group_its_place_before_it_comes(broker: AdminBroker) -> None:
    broker.offsets.commit("g", "T", 0, 4)
    assert broker.ask(CLONE, srcGroup="g", destGroup="new", topic="X").code == 17
    assert broker.ask(CLONE, srcGroup="g", destGroup="n w", topic="T").code == 29
    assert broker.ask(CLONE, srcGroup="g", destGroup="CID_RMQ_SYS_TRANS").code == 16
    assert broker.groups.find("new") is None
    assert broker.ask(CLONE, srcGroup="g", destGroup="new", topic="T").code == 0
    assert broker.groups.find("new") == GroupConfig("new")
    assert broker.offsets.queues_of("new", "T") == {0: 4}
    broker.groups.set_auto_create(False)
    assert broker.ask(CLONE, srcGroup="g", destGroup="other", topic="T").code == 0
    assert broker.ask(CLONE, srcGroup="g", destGroup="X", topic="T").code == 26


def test_a_reset_survives_a_restart(broker: AdminBroker) -> None:
    broker.offsets.commit("g", "T", 0, 5)
    broker.ask(RESET, topic="T", group="g", timestamp="0")
    assert broker.offsets.save()
    again = offset_table(broker.disk)
    assert again.query("g", "T", 0) == 0


def test_clean_up_of_topics_that_are_gone(broker: AdminBroker) -> None:
    broker.put("Orphan", 3)
    broker.offsets.commit("g", "Orphan", 0, 2)
    assert broker.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == 0
    assert broker.store.get("Orphan", 0, 0).records == b""
    assert len(broker.store.get("T", 0, 0).messages()) == 5
    assert broker.offsets.query("g", "Orphan", 0) is None
    assert broker.offsets.queues_of("g", "T") == {}
    for code in (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG):
        assert broker.ask(code).code == 0
    assert broker.store.offsets("T", 0) == (0, 5), "nothing has expired"


def test_expired_files_go_by_order() -> None:
    small = AdminBroker({"commit_log_file_size": 4096})
    try:
        small.topics.put(TopicConfig("T", 1, 1))
        small.put("T", 60)
        small.clock.advance(73 * 3_600_000)
        small.put("T", 1)
        assert small.store.offsets("T", 0)[0] == 0
        assert small.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
        low, end = small.store.offsets("T", 0)
        assert 0 < low < end == 61
    finally:
        small.close()
