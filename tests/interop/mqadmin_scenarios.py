"""What operators do with `mqadmin`, each with the checks that hold on any broker.

A scenario gets a `Desk`: a tool, a cluster, and a name that nobody else uses. The same checks run
on our broker and on Apache's, so that "the same output" is what they compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from tests.interop.compatibility_table import Cell
from tests.interop.mqadmin import MQADMIN_VERSIONS
from tests.interop.mqadmin_desk import CLUSTER, MESSAGE_ID, Desk, until
from tests.interop.server_processes import BROKER_KINDS, BROKER_NAME, OURS


def clusters_and_brokers(desk: Desk) -> None:
    [row] = [row for row in desk.tool.ok("clusterList").rows if row[:1] == [CLUSTER]]
    assert row[1:4] == [BROKER_NAME, "0", desk.cluster.address]
    more = desk.tool.ok("clusterList", "-m").rows
    assert [row[:2] for row in more if row[:1] == [CLUSTER]] == [[CLUSTER, BROKER_NAME]]
    status = desk.tool.ok("brokerStatus", "-b", desk.cluster.address).text
    for key in ("putTps", "commitLogMaxOffset", "dispatchBehindBytes", "brokerVersionDesc",
                "msgPutTotalTodayNow", "commitLogDirCapacity", "bootTimestamp"):  # fmt: skip
        assert re.search(rf"^{key}\s+:", status, re.MULTILINE), key


def topics(desk: Desk) -> None:
    topic = desk.topic(3)
    until(lambda: desk.route("readQueueNums", "perm") == [3, 6], "a route")
    assert topic in desk.tool.ok("topicList").text.split()
    assert desk.tool.ok("topicClusterList", "-t", topic).text.split() == [CLUSTER]
    desk.tool.ok("updateTopicPerm", "-c", CLUSTER, "-t", topic, "-p", "4")
    until(lambda: desk.route("perm") == [4], "the name server knows the permission")
    printed = desk.tool.ok("allocateMQ", "-t", topic, "-i", "10.0.0.1,10.0.0.2").text
    assert printed.count('"queueId"') == 3
    desk.tool.ok("deleteTopic", "-c", CLUSTER, "-t", topic)
    until(lambda: "CODE: 17" in desk.tool.run("topicRoute", "-t", topic).text, "it is gone")


def topic_statistics(desk: Desk) -> None:
    topic = desk.topic()
    desk.send("one", 1)
    desk.send("two", 1)
    rows = [row for row in desk.tool.ok("topicStatus", "-t", topic).rows if row[0] == BROKER_NAME]
    assert [row[1:4] for row in rows] == [["0", "0", "0"], ["1", "0", "2"]]
    assert len(rows[0]) == 4 and len(rows[1]) == 6, "an empty queue has no last time"

    def is_counted() -> bool:
        rows = desk.tool.ok("statsAll", "-t", topic).rows
        return any("2" in row for row in rows if row[0] == topic)

    # Apache's counts samples, ours messages.
    until(is_counted, "messages of the last day")


def groups(desk: Desk) -> None:
    desk.tool.ok("updateSubGroup", "-c", CLUSTER, "-g", desk.name, "-r", "3", "-q", "2")
    text = desk.tool.ok("getConsumerConfig", "-g", desk.name).text
    assert re.search(r"retryMaxTimes\s*=\s*3\b", text), text
    assert re.search(r"retryQueueNums\s*=\s*2\b", text), text
    desk.tool.ok("deleteSubGroup", "-c", CLUSTER, "-g", desk.name)
    # Apache 5.5.0 makes the group again, with defaults, when it deletes its retry topic.
    gone = desk.tool.run("getConsumerConfig", "-g", desk.name).text
    assert not re.search(r"retryMaxTimes\s*=\s*3\b", gone), gone
    if desk.cluster.kind == OURS:
        assert "retryMaxTimes" not in gone


def group_lists(desk: Desk) -> None:
    file = desk.cluster.store.parent / f"{desk.name}.json"
    names = [f"{desk.name}-{number}" for number in range(2)]
    file.write_text(json.dumps([{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2,
                                 "perm": 6} for name in names]))  # fmt: skip
    desk.tool.ok("updateTopicList", "-c", CLUSTER, "-f", str(file))
    until(lambda: set(names) <= set(desk.tool.ok("topicList").text.split()), "both topics")
    file.write_text(json.dumps([{"groupName": name} for name in names]))
    desk.tool.ok("updateSubGroupList", "-c", CLUSTER, "-f", str(file))
    assert names[1] in desk.tool.ok("getConsumerConfig", "-g", names[1]).text


def progress_and_connections(desk: Desk) -> None:
    topic = desk.topic()
    for number in range(3):
        desk.send(f"{number}", 0)
    client = desk.consumer()
    until(lambda: desk.progress().get(0) == (3, 3), "all is consumed")
    text = desk.tool.ok("consumerConnection", "-g", desk.name).text
    assert re.search(rf"^{re.escape(client)}\s+127\.0\.0\.1:\d+\s+JAVA\s+V", text, re.MULTILINE)
    assert re.search(rf"^{topic}\s+\*", text, re.MULTILINE)
    for said in ("ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING",
                 "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET"):  # fmt: skip
        assert said in text

    def is_listed() -> bool:
        rows = [row for row in desk.tool.ok("consumerProgress").rows if row[0] == desk.name]
        return [row[1] for row in rows] == ["1"] and "CLUSTERING" in rows[0]

    # A group about which the tool does not hear in three seconds is listed without its members.
    until(is_listed, "one member among all groups")
    rows = desk.tool.ok("brokerConsumeStats", "-b", desk.cluster.address).rows
    assert [row[3:6] for row in rows if row[:2] == [topic, desk.name]] == [["0", "3", "3"]]
    desk.tool.stop_consumer(desk.name)
    until(
        lambda: "CODE: 206" in desk.tool.run("consumerConnection", "-g", desk.name).text,
        "the broker says that nobody is online",
    )
    assert desk.progress()[0] == (3, 3)


def producers(desk: Desk) -> None:
    topic = desk.topic()
    desk.tool.start_producer(desk.name, topic)

    def is_known() -> bool:
        text = desk.tool.run("producerConnection", "-g", desk.name, "-t", topic).text
        return f"@producer-{desk.name}" in text and "JAVA" in text

    # Of two heartbeats at once a client sends only the first, which may know no broker yet.
    until(is_known, "the producer is connected")
    assert "CODE: 1 " in desk.tool.run("producerConnection", "-g", "nobody", "-t", topic).text


def all_producers(desk: Desk) -> None:
    topic = desk.topic()
    desk.tool.start_producer(desk.name, topic)
    said = f"producer group ({desk.name}) instance : clientId="
    until(
        lambda: said in desk.tool.ok("producer", "-b", desk.cluster.address).text,
        "the producer is connected",
    )


def running_info(desk: Desk) -> None:
    topic = desk.topic()
    desk.send("x", 1)
    client = desk.consumer()
    until(lambda: desk.progress().get(1) == (1, 1), "all is consumed")
    text = desk.tool.ok("consumerStatus", "-g", desk.name).text
    assert client in text and "Rebalance OK" in text
    # Stack traces speak of exceptions, too.
    text = desk.tool.run("consumerStatus", "-g", desk.name, "-i", client, "-s").text
    assert "PROP_CONSUME_TYPE" in text and topic in text
    assert "ConsumeMessageThread" in text, "stack traces"


def messages_by_id_and_key(desk: Desk) -> None:
    topic = desk.topic()
    unique = desk.send("hello world", 1, "-k", "order-7", "-c", "red")

    def is_found() -> bool:
        rows = desk.tool.run("queryMsgByKey", "-t", topic, "-k", "order-7").rows
        return [row[1:3] for row in rows if row[0] == unique] == [["1", "0"]]

    # Keys are found shortly after their message.
    until(is_found, "the message by its key")
    none = desk.tool.run("queryMsgByKey", "-t", topic, "-k", "none")
    assert "no message" in none.text
    at_offset = ("queryMsgByOffset", "-t", topic, "-b", BROKER_NAME, "-i", "1", "-o", "0")
    by_unique = ("queryMsgByUniqueKey", "-t", topic, "-i", unique)
    if desk.is_new:
        by_id: tuple[str, ...] = ("queryMsgById", "-t", topic, "-i", unique)
    else:
        # It knows the ids of brokers only.
        printed = desk.tool.ok("printMsg", "-t", topic).text
        by_id = ("queryMsgById", "-i", re.findall(r"msgId=([0-9A-F]{32})", printed)[0])
    for words in (by_unique, by_id, at_offset):
        text = desk.tool.ok(*words).text
        for said in (topic, "red", "order-7", "Queue Offset:        0", "127.0.0.1"):
            assert said in text, (words, text)


def messages_are_tracked(desk: Desk) -> None:
    topic = desk.topic(1)
    unique = desk.send("x", 0)
    desk.consumer()
    until(lambda: desk.progress().get(0) == (1, 1), "all is consumed")
    text = desk.tool.ok("queryMsgByUniqueKey", "-t", topic, "-i", unique).text
    assert re.search(rf"consumerGroup={desk.name}, trackType=CONSUMED\b", text), text


def direct_consumption(desk: Desk) -> None:
    topic = desk.topic(1)
    unique = desk.send("x", 0)
    client = desk.consumer()
    until(lambda: desk.progress().get(0) == (1, 1), "all is consumed")
    before = desk.tool.consumed(desk.name)
    text = desk.tool.ok(
        "queryMsgByUniqueKey", "-t", topic, "-i", unique, "-g", desk.name, "-d", client
    ).text
    assert "CR_SUCCESS" in text, text
    assert desk.tool.consumed(desk.name) == before + 1


def printing(desk: Desk) -> None:
    topic = desk.topic()
    ids = [desk.send(f"body {number}", number % 2) for number in range(3)]
    for words in (("printMsg", "-t", topic), ("consumeMessage", "-t", topic)):
        text = desk.tool.ok(*words).text
        assert sorted(set(ids)) == sorted(
            {found for found in MESSAGE_ID.findall(text) if found in ids}
        )
        assert "body 2" in text
    text = desk.tool.ok("printMsgByQueue", "-t", topic, "-a", BROKER_NAME, "-i", "1", "-p",
                        "true").text  # fmt: skip
    assert ids[1] in text and ids[0] not in text
    text = desk.tool.ok("consumeMessage", "-t", topic, "-b", BROKER_NAME, "-i", "0", "-o", "1",
                        "-c", "1").text  # fmt: skip
    assert ids[2] in text and ids[0] not in text


def queue_entries(desk: Desk) -> None:
    topic = desk.topic()
    for number in range(3):
        desk.send(f"{number}", 1)
    text = desk.tool.ok("queryCq", "-t", topic, "-q", "1", "-i", "1", "-c", "10", "-b",
                        desk.cluster.address).text  # fmt: skip
    assert "max: 3, min: 0" in text
    assert text.count("physicOffset=") == 2, text


def reset_online(desk: Desk) -> None:
    topic = desk.topic()
    for number in range(4):
        desk.send(f"{number}", number % 2)
    desk.consumer()
    ends = {0: (2, 2), 1: (2, 2)}
    until(lambda: desk.progress() == ends, "all is consumed")
    assert desk.tool.consumed(desk.name) == 4
    printed = desk.tool.ok("resetOffsetByTime", "-g", desk.name, "-t", topic, "-s", "0")
    assert desk.offsets(printed) == {0: 0, 1: 0}
    until(lambda: desk.tool.consumed(desk.name) >= 8, "everything is consumed again")
    until(lambda: desk.progress() == ends, "progress is where it was")


def reset_offline(desk: Desk) -> None:
    topic = desk.topic()
    for number in range(4):
        desk.send(f"{number}", number % 2)
    desk.consumer()
    ends = {0: (2, 2), 1: (2, 2)}
    until(lambda: desk.progress() == ends, "all is consumed")
    desk.tool.stop_consumer(desk.name)
    until(
        lambda: "CODE: 206" in desk.tool.run("consumerConnection", "-g", desk.name).text,
        "the group is offline",
    )
    desk.tool.run("resetOffsetByTime", "-g", desk.name, "-t", topic, "-s", "0", "-f", "true")
    until(lambda: desk.progress() == {0: (2, 0), 1: (2, 0)}, "progress went back")
    desk.tool.run("skipAccumulatedMessage", "-g", desk.name, "-t", topic, "-f", "true")
    until(lambda: desk.progress() == ends, "the rest was skipped")
    desk.tool.ok("updateSubGroup", "-c", CLUSTER, "-g", f"{desk.name}-copy")
    desk.tool.ok("cloneGroupOffset", "-s", desk.name, "-d", f"{desk.name}-copy", "-t", topic,
                 "-o", "true")  # fmt: skip
    rows = desk.tool.ok("brokerConsumeStats", "-b", desk.cluster.address).rows
    copied = [row[3:6] for row in rows if row[:2] == [topic, f"{desk.name}-copy"]]
    assert copied == [["0", "2", "2"], ["1", "2", "2"]]


def broker_settings(desk: Desk) -> None:
    text = desk.tool.ok("getBrokerConfig", "-b", desk.cluster.address).text
    assert re.search(rf"^brokerName\s+=\s+{BROKER_NAME}", text, re.MULTILINE)
    before = re.search(r"^transactionCheckMax\s+=\s+(\d+)", text, re.MULTILINE)
    assert before is not None
    for value in ("7", before[1]):
        desk.tool.ok("updateBrokerConfig", "-b", desk.cluster.address, "-k",
                     "transactionCheckMax", "-v", value)  # fmt: skip
        text = desk.tool.ok("getBrokerConfig", "-b", desk.cluster.address).text
        assert re.search(rf"^transactionCheckMax\s+=\s+{value}\s*$", text, re.MULTILINE)
    desk.tool.ok("updateBrokerConfig", "-b", desk.cluster.address, "-k", "noSuchSetting", "-v", "1")
    if desk.cluster.kind == OURS:
        refused = desk.tool.run("updateBrokerConfig", "-b", desk.cluster.address, "-k",
                                "storePathRootDir", "-v", "/elsewhere")  # fmt: skip
        assert "CODE: 16" in refused.text and "broker.conf" in refused.text


def name_server_settings(desk: Desk) -> None:
    desk.tool.ok("updateKvConfig", "-s", desk.name, "-k", "a", "-v", "b")
    desk.tool.ok("deleteKvConfig", "-s", desk.name, "-k", "a")
    put = desk.tool.ok("updateOrderConf", "-t", desk.name, "-m", "put", "-v", "broker-a:4")
    assert "broker-a:4" in put.text
    got = desk.tool.ok("updateOrderConf", "-t", desk.name, "-m", "get")
    assert "orderConf=[broker-a:4]" in got.text
    desk.tool.ok("updateOrderConf", "-t", desk.name, "-m", "delete")
    assert "orderMessageEnable" in desk.tool.ok("getNamesrvConfig").text
    desk.tool.ok("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")


def clean_ups(desk: Desk) -> None:
    topic = desk.topic()
    desk.send("kept", 0)
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in desk.tool.ok(command, "-b", desk.cluster.address).text
    assert "kept" in desk.tool.ok("printMsg", "-t", topic).text


def round_trips(desk: Desk) -> None:
    topic = desk.topic()
    status = ("sendMsgStatus", "-b", BROKER_NAME, "-s", "16", "-c", "2")
    times = ("checkMsgSendRT", "-t", topic, "-a", "2", "-s", "16")
    # Both give a broker three seconds, which a busy machine does not always keep.
    until(lambda: desk.tool.run(*status).text.count("SEND_OK") == 2, "two messages")
    until(lambda: desk.tool.run(*times).text.count("true") == 2, "two round trips")


def exports(desk: Desk) -> None:
    desk.topic()
    home = str(desk.cluster.store.parent)
    desk.tool.ok("exportMetadata", "-c", CLUSTER, "-f", home)
    desk.tool.ok("exportConfigs", "-c", CLUSTER, "-f", home)
    desk.tool.ok("exportMetrics", "-c", CLUSTER, "-f", home)
    metadata = (desk.cluster.store.parent / "metadata.json").read_text()
    assert desk.name in metadata
    configs = json.loads((desk.cluster.store.parent / "configs.json").read_text())
    assert BROKER_NAME in json.dumps(configs)


def unknown_names(desk: Desk) -> None:
    for words in (("topicStatus", "-t"), ("topicRoute", "-t")):
        assert "CODE: 17" in desk.tool.run(*words, "NoSuchTopic").text
    assert "CODE: 17" in desk.tool.run("consumerProgress", "-g", "NoSuchGroup").text
    refused = desk.tool.run("updateTopic", "-c", CLUSTER, "-t", "no topic!", "-r", "1", "-w", "1")
    assert refused.failed
    assert "no topic!" not in desk.tool.ok("topicList").text


def replication_status(desk: Desk) -> None:
    text = desk.tool.ok("haStatus", "-b", desk.cluster.address).text
    assert re.search(r"#SlaveNum\s+0", text), text


def write_permission(desk: Desk) -> None:
    desk.topic()

    def is_wiped() -> bool:
        wiped = desk.tool.ok("wipeWritePerm", "-b", BROKER_NAME).text
        assert re.search(r"OK, [1-9]\d*", wiped), wiped
        return desk.route("perm") == [4]

    # A broker that registers in between has told its own permissions once more.
    until(is_wiped, "the permission is wiped")
    desk.tool.ok("addWritePerm", "-b", BROKER_NAME)
    until(lambda: desk.route("perm") == [6], "the permission is back")


class AdminScenario(NamedTuple):
    """One row: `alone` scenarios run after all others; `versions` have the commands."""

    title: str
    run: Callable[[Desk], None]
    alone: bool = False
    only_new: bool = False

    @property
    def name(self) -> str:
        """Of its topics and groups."""
        return f"adm-{self.run.__name__.replace('_', '-')}"


SCENARIOS = (
    AdminScenario("cluster list and broker status", clusters_and_brokers),
    AdminScenario("topics: create, route, permission, delete", topics),
    AdminScenario("topic statistics", topic_statistics),
    AdminScenario("groups: create, show, delete", groups),
    AdminScenario("lists of topics and groups from a file", group_lists, only_new=True),
    AdminScenario("group progress and connections", progress_and_connections),
    AdminScenario("producer connections", producers),
    AdminScenario("all producers of a broker", all_producers),
    AdminScenario("what consumers are doing, with stacks", running_info),
    AdminScenario("messages by id, key and offset", messages_by_id_and_key),
    AdminScenario("which groups consumed a message", messages_are_tracked),
    AdminScenario("one message to one consumer directly", direct_consumption),
    AdminScenario("messages printed and consumed by the tool", printing),
    AdminScenario("entries of a consume queue", queue_entries),
    AdminScenario("offset reset while the group consumes", reset_online),
    AdminScenario("offset reset, skip and clone of idle groups", reset_offline),
    AdminScenario("broker settings read and changed", broker_settings),
    AdminScenario("key-value, order and name server settings", name_server_settings),
    AdminScenario("clean-ups", clean_ups),
    AdminScenario("send status and round trip times", round_trips),
    AdminScenario("metadata, settings and metrics exported", exports),
    AdminScenario("unknown and impossible names", unknown_names),
    AdminScenario("replication status", replication_status, only_new=True),
    AdminScenario("write permission wiped and restored", write_permission, alone=True),
)

CLIENTS = tuple(f"mqadmin {version}" for version in MQADMIN_VERSIONS)


def impossible() -> dict[Cell, str]:
    """Cells that no run can fill, and why."""
    reason = "mqadmin has this command since 5.x"
    return {
        Cell(case.title, client, broker): reason
        for case in SCENARIOS
        if case.only_new
        for client in CLIENTS
        if client.startswith("mqadmin 4")
        for broker in BROKER_KINDS
    }
