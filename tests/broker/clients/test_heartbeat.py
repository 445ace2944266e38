"""Heartbeats, member lists, offsets and locks as requests: answers, golden bodies, refusals."""

from __future__ import annotations

import errno
import json

import pytest

from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.topic_name import SYSTEM_GROUPS
from broker_core.errors import (
    DiskFailed,
    InvalidArgument,
    InvalidSubscription,
    LimitReached,
    RmqError,
)
from broker_core.protocol_codes import RequestCode
from tests.broker.broker_tables import (
    OpenConnection,
)
from tests.broker.clients.processor_desk import Desk
from tests.codec.wire.bodies.test_heartbeat_data import JAVA


@pytest.fixture
def desk() -> Desk:
    return Desk()


class TestHeartbeat:
    def test_it_makes_the_group_and_its_retry_topic_at_once(self, desk: Desk) -> None:
        changed: list[list[TopicConfig]] = []
        desk.topics.on_change(changed.append)
        connection = OpenConnection()
        answer = desk.ask(RequestCode.HEART_BEAT, connection, JAVA)
        assert (answer.code, answer.ext, answer.version) == (0, {}, 409)
        assert desk.groups.find("CG") == GroupConfig("CG")
        assert changed == [[TopicConfig("%RETRY%CG", 1, 1, 6)]], "its route is known at once"
        assert desk.clients.consumer_ids("CG") == ["10.0.0.9@4321#98765"]
        assert [m.connection for m in desk.clients.producers("PG")] == [connection]
        subscription = desk.clients.subscription("CG", "T1")
        assert subscription is not None
        assert subscription.codes == {2598919}
        assert connection.notices() == ["CG"]

    def test_retry_queues_and_unit_mode_are_the_groups(self, desk: Desk) -> None:
        desk.groups.put(GroupConfig("CG", retry_queue_count=3))
        desk.ask(RequestCode.HEART_BEAT, None, JAVA.replace(b'Mode":false}]', b'Mode":true}]'))
        assert desk.topics.find("%RETRY%CG") == TopicConfig("%RETRY%CG", 3, 3, 6, sys_flag=2)

    def test_a_group_without_retries_gets_no_topic(self, desk: Desk) -> None:
        desk.groups.put(GroupConfig("CG", retry_queue_count=0))
        desk.beat(OpenConnection())
        assert desk.topics.find("%RETRY%CG") is None
        assert desk.clients.consumer_ids("CG") == ["c"]

    def test_a_group_that_may_not_be_made_is_still_answered_0(self) -> None:
        desk = Desk(groups={"auto_create": False})
        connection = OpenConnection()
        desk.beat(connection, "c", "unknown", "CG")
        assert desk.clients.consumer_groups() == []
        assert desk.topics.find("%RETRY%CG") is None
        assert [m.connection for m in desk.clients.producers("PG")] == [connection]
        desk.groups.put(GroupConfig("CG"))
        desk.beat(connection, "c", "unknown", "CG")
        assert desk.clients.consumer_groups() == ["CG"]

    def test_a_group_can_forbid_notices(self, desk: Desk) -> None:
        desk.groups.put(GroupConfig("CG", notify_on_change=False))
        a, b = OpenConnection(1), OpenConnection(2)
        desk.beat(a, "a")
        desk.beat(b, "b")
        assert a.notices() == b.notices() == []

    def test_a_member_that_does_not_read_gets_no_notice(self, desk: Desk) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        desk.beat(a, "a")
        a.notices()
        a.is_writable = False
        desk.beat(b, "b")
        assert (a.notices(), b.notices()) == ([], ["CG"])

    def test_over_the_limit_the_rest_is_served(self) -> None:
        desk = Desk(groups={"groups_max": len(SYSTEM_GROUPS) + 1})
        connection = OpenConnection()
        with pytest.raises(LimitReached, match="groupsMax"):
            desk.beat(connection, "c", "g1", "g2")
        assert desk.clients.consumer_groups() == ["g1"]
        assert desk.topics.find("%RETRY%g2") is None
        desk.beat(connection, "c", "g1")

    def test_a_full_disk_is_an_error_and_no_member_joins(self, desk: Desk) -> None:
        desk.disk.fail(desk.disk.operation_count + 1, errno.ENOSPC, sticky=True)
        with pytest.raises(DiskFailed):
            desk.beat(OpenConnection())
        assert desk.clients.consumer_groups() == []

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"[]",
            b"{",
            b'{"clientID":""}',
            encode_heartbeat(HeartbeatData("c", ("../x",))),
            encode_heartbeat(HeartbeatData("c", (), (ConsumerData("good"), ConsumerData("a/b")))),
            encode_heartbeat(
                HeartbeatData(
                    "c", (), (ConsumerData("g", subscriptions=(SubscriptionData(".."),)),)
                )
            ),
        ],
    )
    def test_what_cannot_be_is_refused_and_changes_nothing(self, desk: Desk, body: bytes) -> None:
        tree = desk.disk.tree()
        with pytest.raises(RmqError) as refused:
            desk.ask(RequestCode.HEART_BEAT, None, body)
        assert refused.value.response_code == 29
        assert desk.disk.tree() == tree
        assert desk.clients.consumer_groups() == []


class TestUnregister:
    def test_the_other_members_are_notified(self, desk: Desk) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        desk.beat(a, "a")
        desk.beat(b, "b")
        a.notices()
        fields = {"clientID": "b", "consumerGroup": "CG", "producerGroup": "PG"}
        assert desk.ask(RequestCode.UNREGISTER_CLIENT, b, **fields).code == 0
        assert a.notices() == ["CG"]
        assert [m.connection for m in desk.clients.producers("PG")] == [a]
        assert desk.ask(RequestCode.UNREGISTER_CLIENT, b, **fields).code == 0
        with pytest.raises(InvalidArgument, match="clientID"):
            desk.ask(RequestCode.UNREGISTER_CLIENT, b, consumerGroup="CG")

    def test_other_clients_cannot_be_unregistered(self, desk: Desk) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        desk.beat(a, "a")
        desk.ask(RequestCode.UNREGISTER_CLIENT, b, clientID="a", consumerGroup="CG")
        assert desk.clients.consumer_ids("CG") == ["a"]


class TestClientConfig:
    def test_tags_are_always_fine(self, desk: Desk) -> None:
        body = b'{"clientId":"c","group":"CG","subscriptionData":{"topic":"T","subString":"A"}}'
        assert desk.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body).code == 0
        assert desk.ask(RequestCode.CHECK_CLIENT_CONFIG, None, b'{"clientId":"c"}').code == 0

    def test_expressions_need_a_broker_that_supports_them(self, desk: Desk) -> None:
        def body(kind: str) -> bytes:
            data = {"topic": "T", "subString": "a > 1", "expressionType": kind}
            return json.dumps({"subscriptionData": data}).encode()

        answer = desk.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body("SQL92"))
        assert answer.code == 1
        assert "SQL92" in (answer.remark or "")
        able = Desk(lambda text: None if text == "a > 1" else "no")
        assert able.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body("SQL92")).code == 0
        assert able.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body("XXX")).code == 1
        strict = Desk(lambda _: "a > is not complete")
        with pytest.raises(InvalidSubscription, match="not complete") as refused:
            strict.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body("SQL92"))
        assert refused.value.response_code == 23


class TestMembers:
    def test_ids(self, desk: Desk) -> None:
        desk.beat(OpenConnection(1), "10.0.0.9@2")
        desk.beat(OpenConnection(2), "10.0.0.9@1")
        answer = desk.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="CG")
        assert answer.body == b'{"consumerIdList":["10.0.0.9@1","10.0.0.9@2"]}'

    def test_an_empty_group_is_an_error_and_no_empty_list(self, desk: Desk) -> None:
        answer = desk.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="none")
        assert (answer.code, answer.body) == (1, b"")
        with pytest.raises(InvalidArgument):
            desk.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP)

    def test_connections_of_consumers(self, desk: Desk) -> None:
        desk.ask(RequestCode.HEART_BEAT, OpenConnection(51022), JAVA)
        answer = desk.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG")
        assert answer.body == (
            b'{"connectionSet":[{"clientAddr":"10.0.0.9:51022","clientId":"10.0.0.9@4321#98765",'
            b'"language":"PYTHON","version":409}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
            b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":'
            b'{"T1":{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG",'
            b'"subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T1"}}}'
        )

    def test_a_group_offline_is_206(self, desk: Desk) -> None:
        connection = OpenConnection()
        desk.beat(connection)
        connection.end()
        assert desk.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="CG").code == 206

    def test_connections_of_producers(self, desk: Desk) -> None:
        assert desk.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG").code == 1
        desk.beat(OpenConnection(7), "c")
        answer = desk.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="PG")
        assert answer.body == (
            b'{"connectionSet":[{"clientAddr":"10.0.0.9:7","clientId":"c","language":"PYTHON",'
            b'"version":409}]}'
        )

    def test_all_producers(self, desk: Desk) -> None:
        assert desk.ask(RequestCode.GET_ALL_PRODUCER_INFO).body == b'{"data":{}}'
        desk.beat(OpenConnection(7), "c")
        assert desk.ask(RequestCode.GET_ALL_PRODUCER_INFO).body == (
            b'{"data":{"PG":[{"clientId":"c","language":"PYTHON","lastUpdateTimestamp":'
            b'1700000000000,"remoteIP":"/10.0.0.9:7","version":409}]}}'
        )
