"""Every request code: its answer, its golden body, its refusals. No socket is involved."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.wire.bodies.route_data import decode_topic_list
from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    TopicConfig,
    encode_data_version,
    encode_register_body,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RemoteError
from broker_core.nameserver.kv_config import KvConfig
from broker_core.nameserver.request_handlers import RequestHandlers
from broker_core.nameserver.route_table import RouteTable
from broker_core.nameserver.settings import NameServerSettings, RouteLimits
from broker_core.protocol_codes import RequestCode
from tests.fakes.manual_clock import ManualClock

BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}
SLAVE = {**BROKER, "brokerAddr": "10.0.0.2:10911", "brokerId": "1"}
VERSION = DataVersion(3, 0, 1_700_000_000_000)
TOPICS = (TopicConfig("T1", 8, 8), TopicConfig("TBW102", 8, 8, 7))


class OpenConnection:
    """What the handlers use of a connection."""

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.callbacks: list[Callable[[Any], object]] = []

    def on_close(self, callback: Callable[[Any], object]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        for callback in self.callbacks:
            callback(self)


class Asker:
    """A name server's handlers, asked directly."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.settings = NameServerSettings(**settings)
        self.table = RouteTable(self.settings.limits)
        self.kv = KvConfig(self.settings.limits)
        self.handlers = RequestHandlers(self.table, self.kv, self.settings, self.clock)
        self.connection = OpenConnection()

    def ask(
        self, code: int, body: bytes = b"", connection: Any = None, **ext: str
    ) -> RemotingCommand:
        request = RemotingCommand(code, ext, body, opaque=7)
        answer = self.handlers(connection or self.connection, request)
        assert answer.is_response
        assert answer.opaque == 7
        return answer

    def register(self, connection: Any = None, topics: Any = TOPICS, **ext: str) -> RemotingCommand:
        body = encode_register_body(VERSION, topics)
        answer = self.ask(RequestCode.REGISTER_BROKER, body, connection, **{**BROKER, **ext})
        assert answer.code == 0
        return answer

    def topics(self, code: int, **ext: str) -> tuple[str, ...]:
        return decode_topic_list(self.ask(code, **ext).body).topics


@pytest.fixture
def server() -> Asker:
    asker = Asker()
    asker.register()
    return asker


def test_the_route_of_a_topic(server: Asker) -> None:
    server.register(OpenConnection(), **SLAVE)
    answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
    assert answer.code == 0
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


def test_an_unknown_topic_is_17_without_a_body(server: Asker) -> None:
    answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="nowhere")
    assert (answer.code, answer.body) == (17, b"")
    assert "nowhere" in (answer.remark or "")


def test_route_answers_follow_every_change(server: Asker) -> None:
    def route() -> Any:
        answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
        return json.loads(answer.body) if answer.code == 0 else None

    assert route()["queueDatas"][0]["perm"] == 6
    assert route() == route()
    server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert route()["queueDatas"][0]["perm"] == 4
    server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert route()["queueDatas"][0]["perm"] == 6
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1")
    assert route() is None


def test_order_configuration_shows_only_if_it_is_enabled(server: Asker) -> None:
    def order() -> Any:
        answer = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
        return json.loads(answer.body).get("orderTopicConf")

    value = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "broker-a:4"}
    server.ask(RequestCode.PUT_KV_CONFIG, **value)
    assert order() is None
    server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"# comment\norderMessageEnable=true\n")
    assert order() == "broker-a:4"
    server.ask(RequestCode.PUT_KV_CONFIG, **{**value, "value": "broker-a:8"})
    assert order() == "broker-a:8"


def test_a_registration_is_answered_with_order_configuration_and_the_master() -> None:
    server = Asker()
    first = server.register()
    assert (first.ext, first.body) == ({}, b"")
    server.ask(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="v")
    slave = server.register(**SLAVE)
    assert slave.ext == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}
    assert slave.body == b'{"table":{"T":"v"}}'


def test_a_closed_connection_takes_its_brokers_along(server: Asker) -> None:
    second = OpenConnection()
    server.register(second, **SLAVE)
    server.register(second, **SLAVE)
    assert len(second.callbacks) == 1
    second.end()
    assert server.table.member_group("DefaultCluster", "broker-a").addresses == {
        0: "10.0.0.1:10911"
    }
    server.connection.end()
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 17


def test_a_repeated_registration_is_a_heartbeat(server: Asker) -> None:
    for _ in range(5):
        server.clock.advance(100_000)
        server.register()
        assert server.table.expire(server.clock.monotonic() * 1_000) == []


def test_a_repeated_registration_brings_back_what_was_deleted(server: Asker) -> None:
    server.register()
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1")
    server.register()
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 0
    server.ask(RequestCode.UNREGISTER_BROKER, **BROKER)
    server.register()
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 0


def test_a_repeated_registration_belongs_to_the_connection_it_came_on(server: Asker) -> None:
    second = OpenConnection()
    server.register(second)
    server.register()
    second.end()
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 0
    server.connection.end()
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 17


def test_a_repeated_registration_with_another_body_or_field_is_read(server: Asker) -> None:
    server.register(topics=[*TOPICS, TopicConfig("T3", 1, 1)])
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T3").code == 0
    with pytest.raises(RemoteError, match="crc32"):
        server.register(bodyCrc32="1")
    server.register(heartbeatTimeoutMillis="1000")
    server.clock.advance(1_001)
    assert len(server.table.expire(server.clock.monotonic() * 1_000)) == 1


def test_a_slave_always_gets_its_master(server: Asker) -> None:
    for _ in range(3):
        assert server.register(**SLAVE).ext["masterAddr"] == BROKER["brokerAddr"]


def test_a_broker_unregisters(server: Asker) -> None:
    assert server.ask(RequestCode.UNREGISTER_BROKER, **BROKER).code == 0
    assert server.ask(RequestCode.UNREGISTER_BROKER, **BROKER).code == 0
    assert server.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ()


def test_a_wrong_checksum_and_a_premature_increment_are_refused_with_1(server: Asker) -> None:
    for ext, topics, remark in (
        ({"bodyCrc32": "1"}, TOPICS, "crc32 not match"),
        ({"brokerName": "new"}, TOPICS[:1], "register broker failed"),
    ):
        body = encode_register_body(VERSION, topics)
        with pytest.raises(RemoteError, match=remark) as refused:
            server.ask(RequestCode.REGISTER_BROKER, body, **{**BROKER, **ext})
        assert refused.value.response_code == 1


def test_topics_over_the_limit_are_refused_and_the_rest_stays() -> None:
    server = Asker(limits=RouteLimits(topics_max=2))
    server.register()
    body = encode_register_body(VERSION._replace(counter=4), [TopicConfig("T3", 1, 1)])
    with pytest.raises(RemoteError, match="over the name server's limit"):
        server.ask(RequestCode.REGISTER_BROKER, body, **BROKER)
    assert server.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ("T1", "TBW102")


def test_data_versions_are_compared_and_keep_a_broker_alive(server: Asker) -> None:
    def query(version: DataVersion, **ext: str) -> RemotingCommand:
        body = encode_data_version(version)
        return server.ask(RequestCode.QUERY_DATA_VERSION, body, **{**BROKER, **ext})

    same = query(VERSION)
    assert (same.ext, same.body) == ({"changed": "false"}, encode_data_version(VERSION))
    other = query(VERSION._replace(counter=4))
    assert (other.ext, other.body) == ({"changed": "true"}, encode_data_version(VERSION))
    unknown = query(VERSION, brokerName="unknown")
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    server.clock.advance(100_000)
    query(VERSION)
    server.clock.advance(100_000)
    assert server.table.expire(server.clock.monotonic() * 1_000) == []


def test_heartbeats_keep_a_broker_alive(server: Asker) -> None:
    server.clock.advance(100_000)
    fields = {name: BROKER[name] for name in ("brokerName", "brokerAddr", "clusterName")}
    assert server.ask(RequestCode.BROKER_HEARTBEAT, **fields).code == 0
    server.clock.advance(100_000)
    assert server.table.expire(server.clock.monotonic() * 1_000) == []
    server.clock.advance(20_001)
    assert len(server.table.expire(server.clock.monotonic() * 1_000)) == 1


def test_member_groups(server: Asker) -> None:
    fields = {"clusterName": "DefaultCluster", "brokerName": "broker-a"}
    assert server.ask(RequestCode.GET_BROKER_MEMBER_GROUP, **fields).body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster"}}'
    )
    unknown = server.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c", brokerName="b")
    assert json.loads(unknown.body)["brokerMemberGroup"]["brokerAddrs"] == {}


def test_a_single_topic_is_registered(server: Asker) -> None:
    body = (
        b'{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,'
        b'"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="T9").code == 0
    assert server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, topic="T8").code == 0
    topics = server.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert topics == ("T1", "T9", "TBW102")


def test_cluster_info(server: Asker) -> None:
    assert server.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"10.0.0.1:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    assert Asker().ask(RequestCode.GET_BROKER_CLUSTER_INFO).body == (
        b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )


def test_topic_lists() -> None:
    server = Asker()
    server.register(topics=[TopicConfig(f"F{flag}", 1, 1, sys_flag=flag) for flag in range(4)])
    assert server.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ("F0", "F1", "F2", "F3")
    in_cluster = server.topics(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster")
    assert in_cluster == ("F0", "F1", "F2", "F3")
    assert server.topics(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="unknown") == ()
    assert server.topics(RequestCode.GET_UNIT_TOPIC_LIST) == ("F1", "F3")
    assert server.topics(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ("F2", "F3")
    assert server.topics(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ("F2",)
    assert server.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body == (
        b'{"brokerAddr":"10.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'
    )


def test_permission_requests_count_topics(server: Asker) -> None:
    wiped = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert wiped.ext == {"wipeTopicCount": "2"}
    added = server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert added.ext == {"addTopicCount": "2"}
    unknown = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="unknown")
    assert unknown.ext == {"wipeTopicCount": "0"}


def test_a_topic_is_deleted_in_one_cluster_only(server: Asker) -> None:
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="Other")
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 0
    server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="DefaultCluster")
    assert server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1").code == 17


def test_kv_requests(server: Asker) -> None:
    where = {"namespace": "ns", "key": "k"}
    assert server.ask(RequestCode.GET_KV_CONFIG, **where).code == 22
    assert server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ns").code == 22
    assert server.ask(RequestCode.PUT_KV_CONFIG, **where, value="v").code == 0
    assert server.ask(RequestCode.GET_KV_CONFIG, **where).ext == {"value": "v"}
    listed = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ns")
    assert (listed.code, listed.body) == (0, b'{"table":{"k":"v"}}')
    assert server.ask(RequestCode.DELETE_KV_CONFIG, **where).code == 0
    assert server.ask(RequestCode.GET_KV_CONFIG, **where).code == 22


def test_settings_are_listed_and_changed(server: Asker) -> None:
    assert server.ask(RequestCode.GET_NAMESRV_CONFIG).body == (
        b"orderMessageEnable=false\nscanNotActiveBrokerInterval=5000\n"
    )
    change = b"orderMessageEnable = TRUE\n"
    assert server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, change).code == 0
    assert b"orderMessageEnable=true" in bytes(server.ask(RequestCode.GET_NAMESRV_CONFIG).body)
    assert server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, b"").code == 0


@pytest.mark.parametrize(
    "key",
    [
        "kvConfigPath",
        "configStorePath",
        "configStorePathName",
        "rocketmqHome",
        "configBlackList",
        "listenPort",
        "bindAddress",
        "scanNotActiveBrokerInterval",
        "",
        "unknown",
    ],
)
def test_other_settings_cannot_be_changed(server: Asker, key: str) -> None:
    before = server.ask(RequestCode.GET_NAMESRV_CONFIG).body
    change = f"orderMessageEnable=true\n{key}=x\n".encode()
    answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, change)
    assert answer.code == 16
    assert server.ask(RequestCode.GET_NAMESRV_CONFIG).body == before


@pytest.mark.parametrize("body", [b"\xff", b"orderMessageEnable", b"orderMessageEnable=7"])
def test_malformed_settings_change_nothing(server: Asker, body: bytes) -> None:
    before = server.ask(RequestCode.GET_NAMESRV_CONFIG).body
    with pytest.raises(InvalidArgument):
        server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body)
    assert server.ask(RequestCode.GET_NAMESRV_CONFIG).body == before


@pytest.mark.parametrize("code", [0, -1, 10, 34, 99, 307, 905, 32767, 200050])
def test_an_unknown_code_is_3(server: Asker, code: int) -> None:
    answer = server.ask(code)
    assert answer.code == 3
    assert answer.remark == f" request type {code} not supported"


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, "topic"),
        (RequestCode.REGISTER_BROKER, "clusterName"),
        (RequestCode.UNREGISTER_BROKER, "clusterName"),
        (RequestCode.QUERY_DATA_VERSION, "clusterName"),
        (RequestCode.BROKER_HEARTBEAT, "clusterName"),
        (RequestCode.GET_BROKER_MEMBER_GROUP, "clusterName"),
        (RequestCode.REGISTER_TOPIC_IN_NAMESRV, "topic"),
        (RequestCode.GET_TOPICS_BY_CLUSTER, "cluster"),
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, "brokerName"),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, "brokerName"),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, "topic"),
        (RequestCode.PUT_KV_CONFIG, "namespace"),
        (RequestCode.GET_KV_CONFIG, "namespace"),
        (RequestCode.DELETE_KV_CONFIG, "namespace"),
        (RequestCode.GET_KVLIST_BY_NAMESPACE, "namespace"),
    ],
)
def test_a_missing_field_is_named(server: Asker, code: int, field: str) -> None:
    with pytest.raises(InvalidArgument, match=f"field {field} is missing"):
        server.ask(code)
