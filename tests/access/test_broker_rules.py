"""Every request code of a running broker and name server, asked by every kind of account.

Allowed means that the handler answered, with any code; refused means NO_PERMISSION from the gate.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker_core.access.broker_rules import BROKER_RULES
from broker_core.access.name_server_rules import NAME_SERVER_RULES
from broker_core.access.permissions import Role
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.sink_messages import (
    BatchIdentity,
    Publication,
    block_head,
    encode_ids,
    encode_publication,
)
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.nameserver.name_server import NameServer
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.access.access_files import (
    ACCOUNTS,
    ADMIN,
    BROKER,
    READER,
    WRITER,
    signer,
    write_access_file,
)
from tests.broker.running_broker import TIMEOUT_MS, UNIQUE, broker_config, running
from tests.patient_client import patient_client

Asked = tuple[dict[str, str], bytes]

ROLES: Mapping[str, dict[str, Any] | None] = {
    "nobody": None,
    "reader": READER,
    "broker": BROKER,
    "writer": WRITER,
    "admin": ADMIN,
}

# What a reader of topic T in group G may ask for.
READER_MAY = {
    11, 361, 12, 14, 15, 29, 30, 31, 32, 33, 34, 35, 36, 38, 41, 42, 46, 202, 203, 208, 222, 223,
    300, 303, 314, 321, 343, 345, 351, 352, 400, 29900, 29901, 29903,
    200050, 200051, 200052, 200053, 200054, 200055, 200151,
}  # fmt: skip
# What a writer of topic T and of sink S may ask for.
WRITER_MAY = {
    10, 310, 320, 370, 29, 30, 31, 32, 34, 35, 37, 202, 351, 29900, 29902, 29910, 29911, 29912,
    29913, 29914, 29915, 29916,
}  # fmt: skip
# What an account of a slave or of a registering broker may ask for.
BROKER_MAY = {21, 43, 45, 60, 61, 201, 402, 905, 906, 29900, 29920, 29923}
# Asked without naming anything: nothing is shown and nothing is changed.
HARMLESS = {34, 35}

_QUEUE = {"topic": "T", "queueId": "0"}
_SEND_LONG = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
    "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0",
    "properties": f"UNIQ_KEY\x01{UNIQUE}\x02", "reconsumeTimes": "0", "unitMode": "false",
}  # fmt: skip
_SEND_SHORT = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
    "h": "0", "i": f"UNIQ_KEY\x01{UNIQUE}\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
_LOCK = json.dumps(
    {
        "clientId": "id",
        "consumerGroup": "G",
        "mqSet": [{"topic": "T", "brokerName": "broker-a", "queueId": 0}],
    }
).encode()
_CONSUMER = ConsumerData("G", subscriptions=(parse_tag_expression("T", "*"),))


def requests(staging_id: str, staged_id: str) -> dict[int, Asked]:
    """A request of each code that needs more than a role, naming T, G and S."""
    pull = {
        **_QUEUE, "consumerGroup": "G", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    both = {"topic": "T", "consumerGroup": "G", "group": "G", "queueId": "0"}
    record = encode_record(MessageRecord("T", 0, b"staged"))
    identity = BatchIdentity("S", 1, "run")
    sink = {"sinkId": "S", "batchId": "1", "runId": "run"}
    return {
        **_about_clients(),
        **_about_pops(),
        10: (_SEND_LONG, b"body"),
        310: (_SEND_SHORT, b"body"),
        320: ({**_SEND_SHORT, "m": "true"}, b""),
        11: (pull, b""),
        361: (pull, b""),
        12: ({"topic": "T", "key": "k", "beginTimestamp": "0", "endTimestamp": "9"}, b""),
        14: (both, b""),
        15: ({**both, "commitOffset": "0"}, b""),
        29: ({**_QUEUE, "timestamp": "0"}, b""),
        30: (_QUEUE, b""),
        31: (_QUEUE, b""),
        32: (_QUEUE, b""),
        33: ({"offset": "0"}, b""),
        36: ({"group": "G", "offset": "0", "delayLevel": "0", "originTopic": "T"}, b""),
        37: (
            {
                "producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": "0",
                "commitOrRollback": "8",
            },
            b"",
        ),
        29901: ({**_QUEUE, "consumerGroup": "G", "offset": "0"}, b""),
        29903: ({**_QUEUE, "consumerGroup": "G", "offset": "0"}, b""),
        370: ({"topic": "T", "producerGroup": "PG", "recallHandle": "h"}, b""),
        29902: ({**_QUEUE, "producerGroup": "PG"}, b""),
        29910: (sink, b""),
        29911: (
            {"stagingId": staging_id, "index": "0"}, block_head(((b"T", 0),)) + record
        ),
        29912: ({"stagingId": staging_id}, b""),
        29913: ({}, encode_ids([staged_id])),
        29914: ({}, encode_publication(Publication(identity))),
        29915: (sink, b""),
        29916: (sink, b""),
    }  # fmt: skip


def _about_pops() -> dict[int, Asked]:
    both = {**_QUEUE, "consumerGroup": "G"}
    held = {**both, "offset": "0", "extraInfo": "0 1 2 3 0 broker-a 0 0", "invisibleTime": "1"}
    ack = {"c": "G", "t": "T", "r": "1", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "AQ=="}
    return {
        200050: ({**both, "maxMsgNums": "1", "invisibleTime": "1", "pollTime": "0"}, b""),
        200051: ({**held, "topic": "T"}, b""),
        200052: ({**both, "maxMsgNums": "1"}, b""),
        200053: ({**held, "topic": "T"}, b""),
        200054: ({**both, "pollTime": "0"}, b""),
        200055: (both, b""),
        200151: ({}, json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()),
    }


def _about_clients() -> dict[int, Asked]:
    both = {"topic": "T", "consumerGroup": "G", "group": "G", "queueId": "0"}
    return {
        34: ({}, encode_heartbeat(HeartbeatData("id", ("PG",)))),
        35: ({"clientID": "id", "producerGroup": "PG"}, b""),
        38: (both, b""),
        41: ({}, _LOCK),
        42: ({}, _LOCK),
        46: ({}, json.dumps({"group": "G", "subscriptionData": {"topic": "T"}}).encode()),
        202: (both, b""),
        203: (both, b""),
        208: (both, b""),
        222: ({**both, "timestamp": "0", "isForce": "true"}, b""),
        223: (both, b""),
        300: (both, b""),
        303: (both, b""),
        314: ({"srcGroup": "G", "destGroup": "G", "topic": "T"}, b""),
        321: ({**both, "index": "0", "count": "1"}, b""),
        343: (both, b""),
        345: (both, b""),
        351: (both, b""),
        352: (both, b""),
        400: ({}, json.dumps({"topic": "T", "consumerGroup": "G"}).encode()),
    }


def is_refused(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.NO_PERMISSION and "access denied" in (answer.remark or "")


def test_every_code_has_a_rule(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            assert asker.broker.router.codes <= set(BROKER_RULES)

    asyncio.run(scenario())
    assert NameServer().codes <= set(NAME_SERVER_RULES)


def test_every_code_is_allowed_to_whom_it_is_meant_for(tmp_path: Path) -> None:
    asyncio.run(_every_cell_of_a_broker(tmp_path))


async def _every_cell_of_a_broker(tmp_path: Path) -> None:
    file = write_access_file(tmp_path / "access.json", *ACCOUNTS)
    config = broker_config(tmp_path / "store", aclEnable="true", accessFile=str(file))
    async with running(config) as asker:
        address = asker.broker.address
        clients = {
            role: patient_client(sign_request=signer(account) if account else None)
            for role, account in ROLES.items()
        }

        async def ask(role: str, code: int, ext: Mapping[str, str], body: bytes) -> RemotingCommand:
            command = RemotingCommand(code, dict(ext), body)
            return await clients[role].request(address, command, TIMEOUT_MS)

        try:
            topic = {
                "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "1", "perm": "6",
                "writeQueueNums": "1", "topicFilterType": "SINGLE_TAG", "order": "false",
            }  # fmt: skip
            assert (await ask("admin", 17, topic, b"")).code == 0
            assert (await ask("writer", 310, _SEND_SHORT, b"body")).code == 0
            sink = {"sinkId": "S", "batchId": "1", "runId": "run"}
            ids = [(await ask("writer", 29910, sink, b"")).ext["stagingId"] for _ in range(2)]
            asked = requests(*ids)
            served = sorted(asker.broker.router.codes)
            found: dict[str, set[int]] = {role: set() for role in ROLES}
            # Accounts with more permissions come later, because admins delete what others read.
            for role in ROLES:
                for code in served:
                    ext, body = asked.get(code, ({}, b""))
                    if not is_refused(await ask(role, code, ext, body)):
                        found[role].add(code)
        finally:
            for client in clients.values():
                await client.close()
    assert found["nobody"] == set()
    assert found["reader"] == READER_MAY & set(served)
    assert found["writer"] == (WRITER_MAY & set(served))
    assert found["broker"] == ((BROKER_MAY | HARMLESS) & set(served))
    assert found["admin"] == set(served)
    by_role = {code for code, rule in BROKER_RULES.items() if rule.role is not Role.ACCOUNT}
    assert not by_role & (READER_MAY | WRITER_MAY)


def test_resources_of_others_are_refused(tmp_path: Path) -> None:
    """The same requests about topic U, group H and sink R: no account names these."""

    def other(text: str) -> str:
        return {"T": "U", "G": "H", "S": "R"}.get(text, text)

    async def scenario() -> None:
        file = write_access_file(tmp_path / "access.json", *ACCOUNTS)
        config = broker_config(tmp_path / "store", aclEnable="true", accessFile=str(file))
        async with running(config) as asker:
            clients = {
                role: patient_client(sign_request=signer(account))
                for role, account in (("reader", READER), ("writer", WRITER), ("admin", ADMIN))
            }

            async def ask(
                role: str, code: int, ext: Mapping[str, str], body: bytes
            ) -> RemotingCommand:
                command = RemotingCommand(code, dict(ext), body)
                return await clients[role].request(asker.broker.address, command, TIMEOUT_MS)

            # The first record of the log is one of topic U.
            await ask("admin", 310, {**_SEND_SHORT, "b": "U"}, b"body")
            sink = {"sinkId": "R", "batchId": "1", "runId": "run"}
            ids = [(await ask("admin", 29910, sink, b"")).ext["stagingId"] for _ in range(2)]
            wrong = []
            for code, (ext, body) in requests(*ids).items():
                if code not in asker.broker.router.codes or code in HARMLESS | {29900}:
                    continue
                ext = {name: other(value) for name, value in ext.items()}
                body = _renamed(code, body)
                for role in ("reader", "writer"):
                    if not is_refused(await ask(role, code, ext, body)):
                        wrong.append((role, code))
            for client in clients.values():
                await client.close()
            assert wrong == []

    asyncio.run(scenario())


def _renamed(code: int, body: bytes) -> bytes:
    if code == 29911:
        record = encode_record(MessageRecord("U", 0, b"staged"))
        return block_head(((b"U", 0),)) + record
    if code == 29914:
        return encode_publication(Publication(BatchIdentity("R", 1, "run")))
    if code in (41, 42, 46, 400, 200151):
        return body.replace(b'"T"', b'"U"').replace(b'"G"', b'"H"')
    return body


def test_a_heartbeat_is_refused_for_its_groups_and_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = write_access_file(tmp_path / "access.json", *ACCOUNTS)
        config = broker_config(tmp_path / "store", aclEnable="true", accessFile=str(file))
        async with running(config) as asker:
            client = patient_client(sign_request=signer(READER))
            for consumer, allowed in (
                (_CONSUMER, True),
                (_CONSUMER._replace(group="H"), False),
                (_CONSUMER._replace(subscriptions=(parse_tag_expression("U", "*"),)), False),
                # Each consumer subscribes to the retries of its group.
                (_CONSUMER._replace(subscriptions=(parse_tag_expression("%RETRY%G", "*"),)), True),
                (_CONSUMER._replace(subscriptions=(parse_tag_expression("%RETRY%H", "*"),)), False),
                # And one that has popped to those of each topic.
                (
                    _CONSUMER._replace(subscriptions=(parse_tag_expression("%RETRY%G_T", "*"),)),
                    True,
                ),
                (
                    _CONSUMER._replace(subscriptions=(parse_tag_expression("%RETRY%G_U", "*"),)),
                    False,
                ),
                (
                    _CONSUMER._replace(subscriptions=(parse_tag_expression("%RETRY%H_T", "*"),)),
                    False,
                ),
            ):
                body = encode_heartbeat(HeartbeatData("id", ("PG",), (consumer,)))
                command = RemotingCommand(RequestCode.HEART_BEAT, {}, body)
                answer = await client.request(asker.broker.address, command, TIMEOUT_MS)
                assert (answer.code == 0) == allowed, (consumer, answer.remark)
            await client.close()

    asyncio.run(scenario())


# Name server


LOOK_UPS = {101, 105, 106, 206, 219, 224, 304, 311, 312, 313, 901}
REGISTRATION = {103, 104, 217, 322, 904}


def test_every_code_of_a_name_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = write_access_file(tmp_path / "access.json", *ACCOUNTS)
        server = NameServer(access_file=str(file))
        port = await server.start(port=0)
        found: dict[str, set[int]] = {role: set() for role in ROLES}
        for role, account in ROLES.items():
            client = patient_client(sign_request=signer(account) if account else None)
            for code in sorted(server.codes):
                answer = await client.request(
                    f"127.0.0.1:{port}", RemotingCommand(code, {"topic": "T"}), TIMEOUT_MS
                )
                if not is_refused(answer):
                    found[role].add(code)
            await client.close()
        await server.stop()
        served = set(server.codes)
        assert found["nobody"] == set()
        assert found["reader"] == found["writer"] == LOOK_UPS & served
        assert found["broker"] == (LOOK_UPS | REGISTRATION) & served
        assert found["admin"] == served

    asyncio.run(scenario())
