"""A cluster with accounts: our clients in every role, replays, forgeries, secrecy."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker_core.access.account_file import read_accounts
from broker_core.broker.broker import Broker
from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.pull.consumer import PullConsumer
from broker_core.codec.wire import request_signature
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidConfig, NoPermission, RmqError
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
from tests.broker.protected_cluster import cluster, make_topic
from tests.broker.running_broker import TIMEOUT_MS, broker_config, until
from tests.patient_client import patient_client

CANARY = "canary"


def test_each_account_does_its_part_and_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            queue = MessageQueue("T", "broker-a", 0)
            async with found.client(WRITER) as client:
                producer = Producer(client, "PG")
                await producer.start()
                sent = await producer.send(OutgoingMessage("T", b"hello"))
                assert sent.queue_offset == 0
                with pytest.raises(NoPermission, match="no PUB permission on topic 'U'"):
                    await producer.send(OutgoingMessage("U", b"hello"))
                with pytest.raises(NoPermission, match="writer-key is not an admin"):
                    await Admin(client).create_topic("U", queue_count=1)
                with pytest.raises(NoPermission):
                    await PullConsumer(client, "G").pull(queue, 0)
                await producer.stop()
            async with found.client(READER) as client:
                pulled = await PullConsumer(client, "G").pull(queue, 0)
                assert [bytes(message.body) for message in pulled.messages] == [b"hello"]
                with pytest.raises(NoPermission, match="group 'H'"):
                    await PullConsumer(client, "H").pull(queue, 0)
                producer = Producer(client, "PG")
                await producer.start()
                with pytest.raises(NoPermission):
                    await producer.send(OutgoingMessage("T", b"hello"))
                await producer.stop()

    asyncio.run(scenario())


def test_without_an_account_even_routes_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            async with found.client(None) as client:
                with pytest.raises(NoPermission, match="missing or wrong"):
                    await client.routes.route("T")

    asyncio.run(scenario())


def test_a_wrong_key_and_a_wrong_secret_get_the_same_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            wrong = [
                await found.ask({**READER, **changes}, RequestCode.CAPABILITIES)
                for changes in ({"accessKey": "nobody"}, {"secretKey": "wrong-secret"}, {})
            ]
            assert [answer.code for answer in wrong] == [16, 16, 0]
            assert wrong[0].remark == wrong[1].remark
            missing = await found.ask(None, RequestCode.CAPABILITIES)
            assert (missing.code, missing.remark) == (16, wrong[0].remark)

    asyncio.run(scenario())


def test_many_wrong_signatures_are_all_refused_with_the_same_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ's form: an unknown key costs as many signatures and comparisons as a known one."""
    work: Counter[str] = Counter()

    def counted(place: Any, name: str) -> None:
        do = getattr(place, name)

        def count(*arguments: Any) -> Any:
            work[name] += 1
            return do(*arguments)

        monkeypatch.setattr(place, name, count)

    counted(request_signature, "rocketmq_signature")
    counted(hmac, "compare_digest")

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            client = patient_client()

            def wrong(key: str) -> RemotingCommand:
                ext = {"AccessKey": key, "Signature": "vpen6+nTYW8GvuhQzHwBg+mt/oA="}
                return RemotingCommand(RequestCode.CAPABILITIES, ext)

            connection = await client.connect(found.broker.address, TIMEOUT_MS)
            done = {}
            for key in ("nobody", "reader-key"):
                work.clear()
                answers = await asyncio.gather(
                    *(connection.request(wrong(key), TIMEOUT_MS) for _ in range(200))
                )
                assert {answer.code for answer in answers} == {16}
                done[key] = dict(work)
            await client.close()
            assert done["nobody"] == done["reader-key"]
            assert done["nobody"] == {"rocketmq_signature": 200, "compare_digest": 200}

    asyncio.run(scenario())


def test_accounts_change_while_the_broker_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            assert (await found.ask(READER, RequestCode.CAPABILITIES)).code == 0
            write_access_file(found.file, WRITER, ADMIN)

            async def is_out() -> bool:
                return (await found.ask(READER, RequestCode.CAPABILITIES)).code == 16

            gate: Any = found.broker._security._gate  # type: ignore[union-attr]
            await until(lambda: "reader-key" not in gate.accounts.accounts)
            assert await is_out()
            assert (await found.ask(WRITER, RequestCode.CAPABILITIES)).code == 0

    asyncio.run(scenario())


def test_white_lists_need_no_signature(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            gate: Any = found.broker._security._gate  # type: ignore[union-attr]
            write_access_file(found.file, {**READER, "whiteRemoteAddress": "127.0.0.*"})
            gate.accounts = read_accounts(str(found.file))
            ext = {"AccessKey": READER["accessKey"], "topic": "T", "consumerGroup": "G"}
            allowed = await found.ask(None, RequestCode.QUERY_CONSUMER_OFFSET, queueId="0", **ext)
            assert allowed.code != 16
            other = {**ext, "topic": "U"}
            refused = await found.ask(None, RequestCode.QUERY_CONSUMER_OFFSET, queueId="0", **other)
            assert refused.code == 16
            write_access_file(found.file, globalWhiteRemoteAddresses=["127.0.0.0/8"])
            gate.accounts = read_accounts(str(found.file))
            assert (await found.ask(None, RequestCode.GET_BROKER_CONFIG)).code == 0

    asyncio.run(scenario())


# Secrets


def test_no_request_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every code asked by an admin; what comes back, and what was logged, has no secret in it."""
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            for code in sorted(found.broker.router.codes):
                answer = await found.ask(ADMIN, code, topic="T", group="G", consumerGroup="G")
                shown = f"{answer.remark}{answer.ext}".encode() + bytes(answer.body)
                assert CANARY.encode() not in shown, code
            config = await found.ask(ADMIN, RequestCode.GET_BROKER_CONFIG)
            assert b"aclEnable=true" in bytes(config.body)
            await found.ask({**READER, "secretKey": "wrong-canary"}, RequestCode.CAPABILITIES)

    asyncio.run(scenario())
    assert CANARY not in caplog.text


def test_configs_and_errors_show_no_secret() -> None:
    config = ClientConfig(
        ("127.0.0.1:1",), access_key="key", secret_key="canary-1", security_token="canary-2"
    )
    assert CANARY not in repr(config)
    assert CANARY not in repr(ClientInstance(config).__dict__)
    refused: tuple[dict[str, Any], ...] = (
        {"secret_key": "canary-1"},
        {"access_key": "k", "secret_key": "canar"},
        {"security_token": "canary-2"},
        {"access_key": "a\n", "secret_key": "canary-1"},
    )
    for given in refused:
        with pytest.raises(InvalidConfig) as raised:
            ClientConfig(("127.0.0.1:1",), **given)
        assert "canar" not in str(raised.value)
        assert "canar" not in repr(raised.value.value)


# Starting


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"aclEnable": "true"}, "accessFile"),
        ({"accessFile": "x"}, "accessFile"),
        ({"innerAccessKey": "x"}, "innerSecretKeyFile"),
        ({"innerSecretKeyFile": "x"}, "innerAccessKey"),
        ({"tlsServerMode": "on"}, "tlsServerMode"),
        ({"tlsServerMode": "enforcing"}, "tls.server.certPath"),
        ({"tls.client.trustCertPath": "x"}, "tls.client.trustCertPath"),
        ({"metricsExporterType": "prom"}, "metricsExporterType"),
        ({"metricsExporterType": "PROM", "metricsPromExporterHost": "0.0.0.0"}, "metricsProm"),
        ({"metricsPromExporterHost": "somewhere"}, "metricsPromExporterHost"),
        ({"slowRequestThresholdMs": "-1"}, "slowRequestThresholdMs"),
        ({"tls.server.keyPassword": "canary"}, "tls.server.keyPassword"),
    ],
)
def test_settings_that_contradict_are_refused(
    tmp_path: Path, properties: dict[str, str], key: str
) -> None:
    with pytest.raises(InvalidConfig, match=key):
        broker_config(tmp_path, **properties)


def test_a_bad_file_stops_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = write_access_file(tmp_path / "access.json", READER)
        file.chmod(0o644)
        config = broker_config(tmp_path / "store", aclEnable="true", accessFile=str(file))
        with pytest.raises(InvalidConfig, match="chmod 600"):
            await Broker(config).start()
        with pytest.raises(InvalidConfig, match="chmod 600"):
            NameServer(access_file=str(file))

    asyncio.run(scenario())


def test_forged_registrations_are_refused(tmp_path: Path) -> None:
    """Redirecting clients needs a broker's account."""

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            forged = RemotingCommand(
                RequestCode.REGISTER_BROKER,
                {
                    "brokerName": "broker-a", "brokerAddr": "203.0.113.7:10911", "brokerId": "0",
                    "clusterName": "DefaultCluster", "haServerAddr": "203.0.113.7:10912",
                },
                json.dumps({"topicConfigSerializeWrapper": {}, "filterServerList": []}).encode(),
            )  # fmt: skip
            for account in (None, READER, WRITER, {**BROKER, "secretKey": "wrong-secret"}):
                forger = patient_client(sign_request=signer(account) if account else None)
                answer = await forger.request(found.name_server, forged, TIMEOUT_MS)
                assert answer.code == ResponseCode.NO_PERMISSION
                await forger.close()
            async with found.client(READER) as client:
                route = await client.name_servers.route("T")
            addresses = {a for broker in route.brokers for a in broker.addresses.values()}
            assert addresses == {found.broker.address}

    asyncio.run(scenario())


def registering(name: str, code: int = RequestCode.REGISTER_BROKER) -> RemotingCommand:
    """A request about a broker that does not exist."""
    ext = {
        "brokerName": name, "brokerAddr": "127.0.0.1:10999", "brokerId": "0",
        "clusterName": "DefaultCluster", "haServerAddr": "127.0.0.1:10998",
    }  # fmt: skip
    body = {"topicConfigSerializeWrapper": {}, "filterServerList": []}
    return RemotingCommand(code, ext, json.dumps(body).encode())


def test_the_account_of_a_broker_speaks_for_its_own_name(tmp_path: Path) -> None:
    """A stolen account of one broker cannot replace other brokers."""
    bound = {**BROKER, "accessKey": "of-b", "brokerName": "broker-b"}

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            write_access_file(found.file, *ACCOUNTS, bound)
            client = patient_client(sign_request=signer(bound))
            # Until the file has been read again.
            while True:
                answer = await client.request(
                    found.name_server, registering("broker-b"), TIMEOUT_MS
                )
                if answer.code == ResponseCode.SUCCESS:
                    break
            for code in (
                RequestCode.REGISTER_BROKER,
                RequestCode.UNREGISTER_BROKER,
                RequestCode.BROKER_HEARTBEAT,
                RequestCode.QUERY_DATA_VERSION,
            ):
                answer = await client.request(
                    found.name_server, registering("broker-a", code), TIMEOUT_MS
                )
                assert answer.code == ResponseCode.NO_PERMISSION
                assert "broker-b" in (answer.remark or "")
            bare = RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}, b"{}")
            answer = await client.request(found.name_server, bare, TIMEOUT_MS)
            assert answer.code == ResponseCode.NO_PERMISSION
            await client.close()
            async with found.client(READER) as reader:
                route = await reader.name_servers.route("T")
            addresses = {a for broker in route.brokers for a in broker.addresses.values()}
            assert addresses == {found.broker.address}

    asyncio.run(scenario())


def test_an_account_without_a_broker_name_keeps_the_first_one(tmp_path: Path) -> None:
    """The running broker has used it for broker-a; a second account cannot take that name."""
    other = {**BROKER, "accessKey": "other-key"}

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            await make_topic(found)
            client = patient_client(sign_request=signer(BROKER))
            answer = await client.request(found.name_server, registering("broker-b"), TIMEOUT_MS)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "is that of broker 'broker-a', not of 'broker-b'" in (answer.remark or "")
            await client.close()
            write_access_file(found.file, *ACCOUNTS, other)
            client = patient_client(sign_request=signer(other))
            # Until the file has been read again.
            while True:
                answer = await client.request(
                    found.name_server, registering("broker-a"), TIMEOUT_MS
                )
                if "the signature is missing or wrong" not in (answer.remark or ""):
                    break
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "set brokerName of this account" in (answer.remark or "")
            await client.close()

    asyncio.run(scenario())


def test_the_account_of_another_broker_does_not_copy_the_tables(tmp_path: Path) -> None:
    other = {**BROKER, "accessKey": "of-b", "brokerName": "broker-b"}
    own = {**BROKER, "accessKey": "of-a", "brokerName": "broker-a"}

    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            write_access_file(found.file, *ACCOUNTS, other, own)
            while (await found.ask(own, RequestCode.GET_ALL_TOPIC_CONFIG)).code != 0:
                pass
            for code in (
                RequestCode.GET_ALL_TOPIC_CONFIG,
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                RequestCode.METADATA_CHANGES,
            ):
                answer = await found.ask(other, code)
                assert answer.code == ResponseCode.NO_PERMISSION
                assert "is that of broker 'broker-b', not of 'broker-a'" in (answer.remark or "")

    asyncio.run(scenario())


def test_a_broker_without_its_key_is_not_in_the_routes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        file = write_access_file(tmp_path / "access.json", *ACCOUNTS)
        server = NameServer(access_file=str(file))
        port = await server.start(port=0)
        broker = Broker(broker_config(tmp_path / "store", namesrvAddr=f"127.0.0.1:{port}"))
        await broker.start()
        assert server.table.route("TBW102") is None
        await broker.stop()
        await server.stop()

    asyncio.run(scenario())
    assert "not registered with name server" in caplog.text
    assert "access denied" in caplog.text


def test_errors_are_ours(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as found:
            client = patient_client()
            for ext in (
                {"Signature": "x"},
                {"AccessKey": ""},
                {"RmqAuth": "x"},
                {"AccessKey": "é"},
            ):
                command = RemotingCommand(RequestCode.GET_MAX_OFFSET, dict(ext))
                answer = await client.request(found.broker.address, command, TIMEOUT_MS)
                assert answer.code == 16
                with pytest.raises(RmqError):
                    raise NoPermission(answer.code, answer.remark)
            await client.close()

    asyncio.run(scenario())
