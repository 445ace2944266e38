"""Heartbeats, member lists, offsets and locks as requests: answers, golden bodies, refusals."""

from __future__ import annotations

import errno
import json
from typing import Any, cast

import pytest

from broker_core.access.accounts import Account
from broker_core.access.asking_account import note_account
from broker_core.broker.clients.heartbeat import HeartbeatProcessor
from broker_core.broker.clients.locks import QueueLockProcessor
from broker_core.broker.clients.members import ConsumerMembersProcessor
from broker_core.broker.clients.offsets import ConsumerOffsetProcessor
from broker_core.broker.tables.client_table import ClientTable, MemberNotice
from broker_core.broker.tables.queue_locks import QueueLocks
from broker_core.broker.tables.system_topics import SYSTEM_GROUPS
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import SubscriptionData
from broker_core.codec.wire.bodies.topic_config import TopicConfig
from broker_core.codec.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from broker_core.errors import (
    DiskFailed,
    GroupNotExist,
    InvalidArgument,
    InvalidSubscription,
    LimitReached,
    NoPermission,
    RemoteError,
    RmqError,
    TopicNotExist,
)
from broker_core.protocol_codes import LanguageCode, RequestCode
from broker_core.remoting.connection import Connection
from tests.broker.broker_tables import (
    OpenConnection,
    ask,
    group_table,
    offset_table,
    topic_table,
)
from tests.codec.wire.bodies.test_heartbeat_data import JAVA
from tests.store.small_store import new_disk


class Desk:
    """The four processors over one set of tables."""

    def __init__(self, sql_problem: Any = None, **settings: Any) -> None:
        self.disk = new_disk()
        self.ranges: dict[tuple[str, int], tuple[int, int]] = {}
        self.topics = topic_table(self.disk, **settings.get("topics", {}))
        self.groups = group_table(self.disk, **settings.get("groups", {}))
        self.offsets = offset_table(
            self.disk, end_offset=lambda topic, queue: self.range(topic, queue)[1]
        )
        self.clients = ClientTable(self.disk.clock, 120_000, MemberNotice(self.groups))
        self.locks = QueueLocks(self.disk.clock)
        tables = {"clients": self.clients, "groups": self.groups, "topics": self.topics}
        processors: list[Any] = [
            HeartbeatProcessor(**tables, sql_problem=sql_problem),
            ConsumerMembersProcessor(clients=self.clients),
            ConsumerOffsetProcessor(**tables, offsets=self.offsets, queue_offsets=self.range),
            QueueLockProcessor(**tables, locks=self.locks),
        ]
        self.handlers: dict[int, Any] = {}
        for processor in processors:
            self.handlers.update(processor.handlers())

    def range(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.ranges.get((topic, queue_id), (0, 0))

    def ask(self, code: int, *args: Any, **ext: Any) -> RemotingCommand:
        return ask(self.handlers, code, *args, **ext)

    def beat(self, connection: Any, client_id: str = "c", *groups: str) -> None:
        consumers = tuple(
            ConsumerData(group, subscriptions=(SubscriptionData("T1", version=1),))
            for group in groups or ("CG",)
        )
        body = encode_heartbeat(HeartbeatData(client_id, ("PG",), consumers))
        assert self.ask(RequestCode.HEART_BEAT, connection, body).code == 0


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

    def test_a_full_disk_is_an_error_and_nobody_joins(self, desk: Desk) -> None:
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
    def test_the_others_are_told(self, desk: Desk) -> None:
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

    def test_nobody_else_can_be_unregistered(self, desk: Desk) -> None:
        a, b = OpenConnection(1), OpenConnection(2)
        desk.beat(a, "a")
        desk.ask(RequestCode.UNREGISTER_CLIENT, b, clientID="a", consumerGroup="CG")
        assert desk.clients.consumer_ids("CG") == ["a"]


class TestClientConfig:
    def test_tags_are_always_fine(self, desk: Desk) -> None:
        body = b'{"clientId":"c","group":"CG","subscriptionData":{"topic":"T","subString":"A"}}'
        assert desk.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body).code == 0
        assert desk.ask(RequestCode.CHECK_CLIENT_CONFIG, None, b'{"clientId":"c"}').code == 0

    def test_expressions_need_somebody_who_understands_them(self, desk: Desk) -> None:
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


QUEUE = {"consumerGroup": "CG", "topic": "T1", "queueId": "0"}
QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


class TestOffsets:
    @pytest.fixture
    def desk(self) -> Desk:
        desk = Desk()
        desk.topics.put(TopicConfig("T1", 4, 4))
        desk.groups.put(GroupConfig("CG"))
        desk.ranges["T1", 0] = (0, 100)
        return desk

    def test_what_was_committed_is_answered(self, desk: Desk) -> None:
        assert desk.ask(UPDATE, **QUEUE, commitOffset="7").code == 0
        answer = desk.ask(QUERY, **QUEUE)
        assert (answer.code, answer.ext) == (0, {"offset": "7"})

    def test_a_new_group_on_a_young_queue_starts_at_0(self, desk: Desk) -> None:
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "0"}
        assert desk.ask(QUERY, **QUEUE, setZeroIfNotFound="true").ext == {"offset": "0"}
        assert desk.ask(QUERY, **{**QUEUE, "queueId": "3"}).ext == {"offset": "0"}, "empty queue"

    def test_unless_it_does_not_want_to_or_messages_are_gone(self, desk: Desk) -> None:
        answer = desk.ask(QUERY, **QUEUE, setZeroIfNotFound="false")
        assert (answer.code, answer.ext) == (22, {})
        desk.ranges["T1", 0] = (50, 100)
        assert desk.ask(QUERY, **QUEUE).code == 22
        desk.ask(UPDATE, **QUEUE, commitOffset="60")
        assert desk.ask(QUERY, **QUEUE, setZeroIfNotFound="false").ext == {"offset": "60"}

    def test_commits_of_members_never_go_back(self, desk: Desk) -> None:
        desk.beat(OpenConnection())
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="7")
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="3")
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "7"}

    def test_a_commit_in_flight_when_the_group_went_does_not_go_back(self, desk: Desk) -> None:
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="7")
        desk.ask(UPDATE, flag=ONEWAY_FLAG, **QUEUE, commitOffset="3")
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "7"}

    def test_a_tool_resets_an_idle_group(self, desk: Desk) -> None:
        connection = OpenConnection()
        desk.beat(connection)
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        with pytest.raises(RemoteError, match="online") as refused:
            desk.ask(UPDATE, **QUEUE, commitOffset="3")
        assert refused.value.response_code == 604
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "7"}
        connection.end()
        assert desk.ask(UPDATE, **QUEUE, commitOffset="3").code == 0
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "3"}

    def test_a_java_tool_moves_a_group_with_members(self, desk: Desk) -> None:
        """`resetOffsetByTime -q -o` does, and asks for a reset with notification next."""
        member = OpenConnection()
        desk.beat(member)
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        back = RemotingCommand(UPDATE, {**QUEUE, "commitOffset": "3"}, language=LanguageCode.JAVA)
        with pytest.raises(RemoteError, match="online"):
            desk.handlers[UPDATE](member, back)
        assert desk.handlers[UPDATE](OpenConnection(), back).code == 0
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "3"}
        desk.ask(UPDATE, member, flag=ONEWAY_FLAG, **QUEUE, commitOffset="8")
        assert desk.ask(QUERY, **QUEUE).ext == {"offset": "8"}

    def test_a_commit_during_a_reset_is_not_answered_with_success(self, desk: Desk) -> None:
        desk.beat(OpenConnection())
        desk.ask(UPDATE, **QUEUE, commitOffset="7")
        desk.offsets.reset("CG", "T1", 0, 2, until_pulled=True)
        with pytest.raises(RemoteError):
            desk.ask(UPDATE, **QUEUE, commitOffset="9")
        assert desk.offsets.query("CG", "T1", 0) == 2

    def test_what_is_unknown_is_named(self, desk: Desk) -> None:
        with pytest.raises(GroupNotExist):
            desk.ask(UPDATE, **{**QUEUE, "consumerGroup": "none"}, commitOffset="1")
        with pytest.raises(TopicNotExist):
            desk.ask(UPDATE, **{**QUEUE, "topic": "none"}, commitOffset="1")

    @pytest.mark.parametrize(
        "fields",
        [
            {"commitOffset": "101"},
            {"commitOffset": "-1"},
            {"commitOffset": "9223372036854775808"},
            {"commitOffset": ""},
            {"commitOffset": "1.5"},
            {"commitOffset": "1", "queueId": "4"},
            {"commitOffset": "1", "queueId": "-1"},
            {"commitOffset": "1", "queueId": "x"},
            {"commitOffset": "1", "consumerGroup": ""},
            {"commitOffset": "1", "topic": ""},
        ],
    )
    def test_what_cannot_be_is_refused(self, desk: Desk, fields: dict[str, str]) -> None:
        with pytest.raises(InvalidArgument):
            desk.ask(UPDATE, **{**QUEUE, **fields})
        assert len(desk.offsets) == 0


class TestLocks:
    LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ

    @pytest.fixture
    def desk(self) -> Desk:
        desk = Desk()
        desk.topics.put(TopicConfig("T1", 2, 4))
        desk.groups.put(GroupConfig("CG"))
        return desk

    def test_lock_and_unlock(self, desk: Desk) -> None:
        both = (
            b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T1"},'
            b'{"brokerName":"broker-a","queueId":1,"topic":"T1"}]}'
        )
        assert desk.ask(self.LOCK, None, _lock_body("a", 0, 1)).body == both
        assert desk.ask(self.LOCK, None, _lock_body("b", 0, 1)).body == b'{"lockOKMQSet":[]}'
        assert desk.ask(self.UNLOCK, None, _lock_body("a", 0, 1)).code == 0
        assert desk.ask(self.LOCK, None, _lock_body("b", 0, 1)).body == both

    def test_a_lost_connection_keeps_its_locks_for_a_minute(self, desk: Desk) -> None:
        connection = OpenConnection()
        desk.beat(connection, "a")
        desk.ask(self.LOCK, connection, _lock_body("a", 0))
        connection.end()
        assert desk.ask(self.LOCK, None, _lock_body("b", 0)).body == b'{"lockOKMQSet":[]}'
        desk.disk.clock.advance(60_000)
        assert b'"queueId":0' in desk.ask(self.LOCK, None, _lock_body("b", 0)).body

    def test_the_client_id_of_another_account_locks_nothing(self, desk: Desk) -> None:
        """A client id is all that the owner of a lock shows."""
        owner, other = OpenConnection(), OpenConnection(50_001)
        for connection, key in ((owner, "one"), (other, "two")):
            note_account(cast(Connection, connection), Account(key))
        desk.beat(owner, "a")
        desk.ask(self.LOCK, owner, _lock_body("a", 0))
        for code in (self.LOCK, self.UNLOCK):
            with pytest.raises(NoPermission, match="in use by a client of another account"):
                desk.ask(code, other, _lock_body("a", 0))
        assert desk.ask(self.LOCK, other, _lock_body("b", 0)).body == b'{"lockOKMQSet":[]}'
        # Another connection of the same account is another link of the same client.
        again = OpenConnection(50_002)
        note_account(cast(Connection, again), Account("one"))
        assert desk.ask(self.UNLOCK, again, _lock_body("a", 0)).code == 0

    def test_a_group_may_lock_before_its_first_pull_makes_it(self, desk: Desk) -> None:
        body = _lock_body("a", 0, group="new")
        assert b'"queueId":0' in desk.ask(self.LOCK, None, body).body
        assert desk.groups.find("new") is None

    def test_what_does_not_exist_is_not_granted(self, desk: Desk) -> None:
        desk.groups.set_auto_create(False)
        bodies = (
            _lock_body("a", 4),
            _lock_body("a", 0, group="none"),
            _lock_body("a", 0, topic="../x"),
        )
        for body in bodies:
            assert desk.ask(self.LOCK, None, body).body == b'{"lockOKMQSet":[]}'
        assert len(desk.locks) == 0

    @pytest.mark.parametrize("client_id", ["", "x" * 256])
    def test_ids_are_bounded(self, desk: Desk, client_id: str) -> None:
        with pytest.raises(InvalidArgument, match="clientId"):
            desk.ask(self.LOCK, None, _lock_body(client_id, 0))


def _lock_body(client_id: str, *queues: int, group: str = "CG", topic: str = "T1") -> bytes:
    listed = [{"brokerName": "broker-a", "queueId": q, "topic": topic} for q in queues]
    return json.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": listed}).encode()
