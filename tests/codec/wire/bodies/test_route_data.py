"""Name-server bodies: the golden texts of the protocol, the dialect, and what is refused."""

from __future__ import annotations

import json

import pytest

from broker_core.codec.wire.bodies.route_data import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRoute,
    decode_cluster_info,
    decode_kv_table,
    decode_topic_list,
    decode_topic_route,
    encode_cluster_info,
    encode_kv_table,
    encode_member_group,
    encode_topic_list,
    encode_topic_route,
)
from broker_core.errors import InvalidArgument, MalformedJson

BROKER = BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, False)
ROUTE = TopicRoute((BROKER,), (QueueData("broker-a", 8, 8, 6),))

ROUTE_BODY = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
    b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,'
    b'"topicSysFlag":0,"writeQueueNums":8}]}'
)

# As a name server of 4.9 writes it for old clients: bare ids, no keys of 5.x.
DIALECT_BODY = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,'
    b'"topicSynFlag":0,"writeQueueNums":8}]}'
)


def test_the_route_body_is_the_protocols_text() -> None:
    assert encode_topic_route(ROUTE) == ROUTE_BODY
    json.loads(ROUTE_BODY)


@pytest.mark.parametrize("body", [ROUTE_BODY, DIALECT_BODY, memoryview(ROUTE_BODY)])
def test_routes_of_every_version_are_read(body: bytes) -> None:
    assert decode_topic_route(body) == ROUTE


def test_optional_parts_of_a_route() -> None:
    route = TopicRoute(
        (BrokerData("c", "b", {0: "h:1"}, True, "zone-1"),),
        (QueueData("b", 4, 2, 4, 3),),
        "b:4;x:2",
    )
    body = encode_topic_route(route)
    assert b'"orderTopicConf":"b:4;x:2"' in body
    assert b'"zoneName":"zone-1"' in body
    assert decode_topic_route(body) == route


def test_a_route_of_5_x_with_more_keys_is_read() -> None:
    body = ROUTE_BODY[:-1] + b',"topicQueueMappingByBroker":{},"unknown":[1,{"a":null}]}'
    assert decode_topic_route(body) == ROUTE


def test_cluster_info() -> None:
    info = ClusterInfo({"broker-a": BROKER}, {"DefaultCluster": ("broker-a",)})
    body = encode_cluster_info(info)
    assert body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"10.0.0.1:10911",'
        b'"1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster",'
        b'"enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    assert decode_cluster_info(body) == info
    assert decode_cluster_info(body.replace(b'"0":', b"0:").replace(b'"1":', b"1:")) == info


def test_topic_lists() -> None:
    assert encode_topic_list(TopicList(("T1", "T2"))) == b'{"topicList":["T1","T2"]}'
    system = TopicList(("c", "b"), "10.0.0.1:10911")
    body = encode_topic_list(system)
    assert body == b'{"brokerAddr":"10.0.0.1:10911","topicList":["c","b"]}'
    assert decode_topic_list(body) == system
    assert decode_topic_list(b"{}") == TopicList(())


def test_kv_tables() -> None:
    assert encode_kv_table({"T1": "broker-a:4"}) == b'{"table":{"T1":"broker-a:4"}}'
    assert decode_kv_table(b'{"table":{"k":"\xc3\xa9"}}') == {"k": "é"}
    assert decode_kv_table(b"{}") == {}


def test_member_groups() -> None:
    assert encode_member_group(BrokerData("c", "b", {0: "h:1"})) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{"0":"h:1"},"brokerName":"b","cluster":"c"}}'
    )


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"text"',
        b'{"brokerDatas":{}}',
        b'{"brokerDatas":[1]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"h:1"}}]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"-1":"h:1"}}]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"0":1}}]}',
        b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{{"a":1}:"h:1"}}]}',
        b'{"brokerDatas":[{"brokerName":7}]}',
        b'{"queueDatas":[{"brokerName":"b"}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":16,"readQueueNums":1,"writeQueueNums":1}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":-1,"writeQueueNums":1}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":true,"writeQueueNums":1}]}',
        b'{"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1e400,"writeQueueNums":1}]}',
        b'{"orderTopicConf":1}',
        b"{",
        b"",
        b"\xff",
    ],
)
def test_a_hostile_route_is_refused_by_name(body: bytes) -> None:
    with pytest.raises((InvalidArgument, MalformedJson)):
        decode_topic_route(body)
