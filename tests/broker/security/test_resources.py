"""Ambiguous names: every interpretation must be permitted, so none bypasses a rule.

Attacks on a running broker with accounts, by accounts that have some of what they would need.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from tests.access.access_files import ADMIN, signer, write_access_file
from tests.broker.running_broker import UNIQUE, Asker, broker_config, records, running
from tests.patient_client import patient_client

SECRET = b"of group a_x alone"
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


def account(name: str, **permissions: Any) -> dict[str, Any]:
    return {"accessKey": name, "secretKey": f"secret-of-{name}", **permissions}


ATTACKER = account("attacker", topicPerms=["x=SUB"], groupPerms=["a=SUB"])
OWNER = account("owner", topicPerms=["x=DENY"], groupPerms=["a_x=SUB"])
BOTH = account("both", topicPerms=["x=SUB"], groupPerms=["a=SUB", "a_x=SUB"])
# May do anything, except for what is named.
ALMOST = account(
    "almost",
    defaultTopicPerm="PUB|SUB",
    defaultGroupPerm="SUB",
    topicPerms=["x=DENY"],
    groupPerms=["closed=DENY"],
)
REPLIER = account("replier", topicPerms=[f"{REPLY_TOPIC}=PUB"])


class Accounts:
    """A running broker with these accounts, and a connection of each."""

    def __init__(self, asker: Asker, clients: dict[str, RemotingClient]) -> None:
        self.broker = asker.broker
        self._clients = clients

    def of(self, who: dict[str, Any]) -> Asker:
        return Asker(self.broker, self._clients[who["accessKey"]])


@contextlib.asynccontextmanager
async def accounts(tmp_path: Path, *extra: dict[str, Any]) -> AsyncIterator[Accounts]:
    everyone = (ATTACKER, OWNER, BOTH, ALMOST, REPLIER, ADMIN, *extra)
    file = write_access_file(tmp_path / "access.json", *everyone)
    config = broker_config(tmp_path / "store", aclEnable="true", accessFile=str(file))
    async with running(config) as asker:
        clients = {
            each["accessKey"]: patient_client(sign_request=signer(each)) for each in everyone
        }
        try:
            yield Accounts(asker, clients)
        finally:
            for client in clients.values():
                await client.close()


def is_refused(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.NO_PERMISSION and "access denied" in (answer.remark or "")


def pop_fields(topic: str, group: str, **more: Any) -> dict[str, Any]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32,
        "invisibleTime": 60_000, "pollTime": 0, "initMode": 0, **more,
    }  # fmt: skip


@pytest.mark.parametrize("has_group", [True, False])
def test_retries_of_a_group_are_not_those_of_another_with_part_of_its_name(
    tmp_path: Path, has_group: bool
) -> None:
    async def scenario() -> None:
        async with accounts(tmp_path) as found:
            admin, attacker = found.of(ADMIN), found.of(ATTACKER)
            await admin.make_topic("x", queues=1)
            body = encode_heartbeat(HeartbeatData("owner", (), (ConsumerData("a_x"),)))
            assert (await found.of(OWNER).ask(RequestCode.HEART_BEAT, body)).code == 0
            sent = await found.of(OWNER).send("%RETRY%a_x", SECRET)
            assert sent.code == 0, sent.remark
            if not has_group:
                # Its messages are still there.
                code = RequestCode.DELETE_SUBSCRIPTIONGROUP
                assert (await admin.ask(code, groupName="a_x", cleanOffset="true")).code == 0
            for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
                answer = await attacker.pull("%RETRY%a_x", consumerGroup="a", code=code)
                assert is_refused(answer)
            for code in (
                RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION,
            ):  # fmt: skip
                assert is_refused(await attacker.ask(code, **pop_fields("%RETRY%a_x", "a")))
            # Popping a topic also looks into the retries of that topic.
            for code in (RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE):
                for _ in range(6):
                    answer = await attacker.ask(code, **pop_fields("x", "a"))
                    assert not is_refused(answer)
                    assert SECRET not in bytes(answer.body)
            # That has left traces of group a in the topic. They do not help.
            answer = await attacker.pull("%RETRY%a_x", consumerGroup="a")
            assert SECRET not in bytes(answer.body)
            if has_group:
                assert is_refused(answer)
                pulled = await found.of(OWNER).pull("%RETRY%a_x", consumerGroup="a_x")
                assert [message.body for message in records(pulled)] == [SECRET]
                # An account with both permissions gets no error, and the group's own messages.
                assert not is_refused(await found.of(BOTH).pull("%RETRY%a_x", consumerGroup="a"))

    asyncio.run(scenario())


def test_a_group_that_pops_still_gets_its_own_retries(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with accounts(tmp_path) as found:
            await found.of(ADMIN).make_topic("x", queues=1)
            assert (await found.of(ADMIN).send("x", b"popped")).code == 0
            attacker = found.of(ATTACKER)
            first = await attacker.ask(
                RequestCode.POP_MESSAGE, **pop_fields("x", "a", invisibleTime=1)
            )
            assert [message.body for message in records(first)] == [b"popped"]
            fields = pop_fields("x", "a", pollTime=60_000)
            again = await attacker.ask(RequestCode.POP_MESSAGE, **fields)
            (message,) = records(again)
            handle = message.properties["POP_CK"]
            # By name, as consumers that the broker redirects to pulls.
            pulled = await attacker.pull("%RETRY%a_x", consumerGroup="a")
            assert [each.body for each in records(pulled)] == [b"popped"]
            # A group whose name says the same does not get them, and takes nothing away.
            consumer = ConsumerData("a_x", subscriptions=(parse_tag_expression("%RETRY%a_x", "*"),))
            body = encode_heartbeat(HeartbeatData("owner", (), (consumer,)))
            assert (await found.of(OWNER).ask(RequestCode.HEART_BEAT, body)).code == 0
            other = await found.of(OWNER).pull("%RETRY%a_x", consumerGroup="a_x")
            assert not is_refused(other)
            assert b"popped" not in bytes(other.body)
            acked = await attacker.ask(
                RequestCode.ACK_MESSAGE, consumerGroup="a", topic="%RETRY%a_x",
                queueId=handle.split(" ")[6], offset=handle.split(" ")[7], extraInfo=handle,
            )  # fmt: skip
            assert acked.code == 0, acked.remark

    asyncio.run(scenario())


def test_a_group_with_the_name_of_a_retry_topic_reads_no_popped_messages(tmp_path: Path) -> None:
    """By no request: group `a` popped them from topic `x`, `a_x` is a group of another account."""
    secret = b"popped by a"
    name = "%RETRY%a_x"
    other = account("other", groupPerms=["a_x=SUB", "mine=SUB"])

    async def scenario() -> None:
        async with accounts(tmp_path, other) as found:
            popper, admin, attacker = found.of(ATTACKER), found.of(ADMIN), found.of(other)
            await admin.make_topic("x", queues=1)
            sent = await admin.send("x", secret, i=f"UNIQ_KEY\x01{UNIQUE}\x02KEYS\x01k\x02")
            assert sent.code == 0, sent.remark
            for who, group in ((other, "a_x"), (other, "mine"), (ATTACKER, "a")):
                consumer = ConsumerData(group)
                body = encode_heartbeat(HeartbeatData(group, (), (consumer,)))
                assert (await found.of(who).ask(RequestCode.HEART_BEAT, body)).code == 0
            fields = pop_fields("x", "a", invisibleTime=1)
            assert records(await popper.ask(RequestCode.POP_MESSAGE, **fields))
            fields = pop_fields("x", "a", pollTime=60_000)
            assert records(await popper.ask(RequestCode.POP_MESSAGE, **fields))
            (retry,) = records(await admin.pull(name, consumerGroup="a"))
            position = retry.physical_offset
            bulk = {"topic": name, "queueId": 0, "offset": 0}
            by_key = {"topic": name, "key": "k", "beginTimestamp": 0, "endTimestamp": 1 << 60}
            asked = (
                *((RequestCode.PULL_MESSAGE, group) for group in ("a_x", "mine")),
                *((RequestCode.LITE_PULL_MESSAGE, group) for group in ("a_x", "mine")),
            )
            for code, group in asked:
                answer = await attacker.pull(name, consumerGroup=group, code=code)
                assert secret not in bytes(answer.body)
            for group in ("a_x", "mine"):
                for code in (RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE):
                    assert is_refused(await attacker.ask(code, **pop_fields(name, group)))
                pulled = await attacker.ask(RequestCode.BULK_PULL, consumerGroup=group, **bulk)
                assert secret not in bytes(pulled.body)
                files = await attacker.ask(RequestCode.LOCAL_RANGE, consumerGroup=group, **bulk)
                assert is_refused(files)
            assert is_refused(await attacker.ask(RequestCode.QUERY_MESSAGE, **by_key))
            queue = {"topic": name, "queueId": 0, "index": 0, "count": 9}
            assert is_refused(await attacker.ask(RequestCode.QUERY_CONSUME_QUEUE, **queue))
            assert is_refused(await attacker.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=position))
            # As a retry or as a dead letter it would be this group's own message.
            for level in (1, -1):
                back = {"group": "a_x", "offset": position, "delayLevel": level, "originTopic": "x"}
                assert is_refused(await attacker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back))
            # The group that popped it may do all of this.
            viewed = await popper.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=position)
            assert secret in bytes(viewed.body)
            back = {"group": "a", "offset": position, "delayLevel": -1, "originTopic": "x"}
            assert (await popper.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)).code == 0
            both = await found.of(BOTH).ask(RequestCode.QUERY_MESSAGE, **by_key)
            assert secret in bytes(both.body)

    asyncio.run(scenario())


def test_no_message_is_passed_off_as_popped(tmp_path: Path) -> None:
    """Group `a` consumes what it popped from topic `x`, to which the owner of `a_x` cannot send."""

    async def scenario() -> None:
        async with accounts(tmp_path) as found:
            await found.of(ADMIN).make_topic("x", queues=1)
            for who, group in ((OWNER, "a_x"), (ATTACKER, "a")):
                body = encode_heartbeat(HeartbeatData(group, (), (ConsumerData(group),)))
                assert (await found.of(who).ask(RequestCode.HEART_BEAT, body)).code == 0
            text = f"UNIQ_KEY\x01{UNIQUE}\x021ST_POP_TIME\x011\x02ORIGIN_GROUP\x01a\x02"
            sent = await found.of(OWNER).send("%RETRY%a_x", b"forged", i=text)
            assert sent.code == 0, sent.remark
            own = await found.of(OWNER).pull("%RETRY%a_x", consumerGroup="a_x")
            assert [each.body for each in records(own)] == [b"forged"]
            for _ in range(6):
                popped = await found.of(ATTACKER).ask(
                    RequestCode.POP_MESSAGE, **pop_fields("x", "a")
                )
                assert b"forged" not in bytes(popped.body)
            # A group owns what it sends back, also if another group popped it before.
            assert (await found.of(ADMIN).send("x", b"again", i=text)).code == 0
            (message,) = records(await found.of(ADMIN).pull("x", consumerGroup="a_x"))
            back = {"group": "a_x", "offset": message.physical_offset, "originTopic": "x"}
            dead = await found.of(ADMIN).ask(
                RequestCode.CONSUMER_SEND_MSG_BACK, delayLevel=-1, **back
            )
            assert dead.code == 0, dead.remark
            (letter,) = records(await found.of(OWNER).pull("%DLQ%a_x", consumerGroup="a_x"))
            assert "ORIGIN_GROUP" not in letter.properties

    asyncio.run(scenario())


def test_the_reply_topic_must_be_named_to_be_allowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with accounts(tmp_path) as found:
            almost, replier = found.of(ALMOST), found.of(REPLIER)
            assert is_refused(await almost.pull(REPLY_TOPIC))
            assert is_refused(await almost.send(REPLY_TOPIC))
            text = f"UNIQ_KEY\x01{UNIQUE}\x02REPLY_TO_CLIENT\x01client\x02"
            for topic in (REPLY_TOPIC, "y", "Other_REPLY_TOPIC"):
                assert is_refused(await almost.send(topic, text=text, code=325)), topic
                long = await almost.ask(RequestCode.SEND_REPLY_MESSAGE, topic=topic)
                assert is_refused(long), topic
            # Allowed: the client that it is for is just not here.
            answer = await replier.send(REPLY_TOPIC, text=text, code=325)
            assert "not found" in (answer.remark or "")
            assert is_refused(await replier.pull(REPLY_TOPIC))

    asyncio.run(scenario())


def test_a_blank_is_no_way_round_a_denial(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with accounts(tmp_path) as found:
            admin, almost = found.of(ADMIN), found.of(ALMOST)
            await admin.make_topic("x", queues=1)
            assert (await admin.send("x")).code == 0
            both = {"consumerGroup": "source", "topic": "x", "queueId": 0}
            assert not is_refused(await admin.pull("x", consumerGroup="source"))
            moved = await admin.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=1, **both)
            assert moved.code == 0, moved.remark
            for topic in ("x", " x", "x ", "\tx", " ", "", "x\u00a0", "x\x00"):
                answer = await almost.ask(
                    RequestCode.CLONE_GROUP_OFFSET, srcGroup="source", destGroup="mine",
                    topic=topic, offline="true",
                )  # fmt: skip
                assert is_refused(answer), topic
            assert found.broker.context.offsets.queues_of("mine", "x") == {}
            for topic in (" x", "x ", "\nx"):
                for code in (
                    RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET,
                    RequestCode.GET_MAX_OFFSET, RequestCode.GET_TOPIC_STATS_INFO,
                    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.POP_MESSAGE,
                    RequestCode.QUERY_MESSAGE, RequestCode.BULK_PULL, RequestCode.TOPIC_ENDS,
                ):  # fmt: skip
                    fields = {"group": "source", "consumerGroup": "source", "queueId": 0}
                    assert is_refused(await almost.ask(code, topic=topic, **fields)), code
            for group in (" closed", "closed ", "closed"):
                for code in (
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_CONSUME_STATS,
                    RequestCode.CLONE_GROUP_OFFSET, RequestCode.QUERY_TOPICS_BY_CONSUMER,
                ):  # fmt: skip
                    fields = {
                        "group": group, "consumerGroup": group, "srcGroup": group, "topic": "y",
                        "destGroup": "mine",
                    }  # fmt: skip
                    assert is_refused(await almost.ask(code, **fields)), (group, code)

    asyncio.run(scenario())


def test_the_client_of_another_is_not_given_a_reply_by_name_alone(tmp_path: Path) -> None:
    """A reply under a topic that the account may write to is still a reply."""

    async def scenario() -> None:
        async with accounts(tmp_path) as found:
            victim = found.of(BOTH)
            body = encode_heartbeat(HeartbeatData("victim", ("PG",)))
            assert (await victim.ask(RequestCode.HEART_BEAT, body)).code == 0
            text = f"UNIQ_KEY\x01{UNIQUE}\x02REPLY_TO_CLIENT\x01victim\x02"
            answer = await found.of(ALMOST).send("y", text=text, code=325)
            assert is_refused(answer)

    asyncio.run(scenario())
