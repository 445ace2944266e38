"""The configuration of a broker, from Python and from `broker.conf`, and its errors."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import broker_core
from broker_core.broker.settings.broker_config import BrokerConfig, read_properties
from broker_core.broker.settings.broker_properties import (
    BROKER_PROPERTIES,
)
from broker_core.config import RemotingLimits, StoreConfig
from broker_core.errors import InvalidConfig
from broker_core.protocol_codes import BrokerRole, FlushDiskType

SLAVE = StoreConfig(broker_role=BrokerRole.SLAVE)
REMOTE = {
    "allowRemote": "true",
    "aclEnable": "true",
    "accessFile": "access.json",
    "haAuthKeyFile": "ha.key",
}


def from_properties(**properties: str) -> BrokerConfig:
    config, unknown = BrokerConfig.from_properties(properties, "broker.conf")
    assert unknown == ()
    return config


def test_defaults_serve_this_machine_only() -> None:
    config = BrokerConfig()
    assert (config.cluster_name, config.broker_name) == ("DefaultCluster", "broker-a")
    assert (config.listen_host, config.listen_port) == ("127.0.0.1", 10911)
    assert (config.address, config.ha_address) == ("127.0.0.1:10911", "127.0.0.1:10912")
    assert config.auto_create_topic is True
    assert config.is_master


def test_a_broker_flushes_as_apache_does_and_a_bare_store_does_not() -> None:
    assert BrokerConfig().store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert from_properties().store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    assert StoreConfig().flush_disk_type is FlushDiskType.SYNC_FLUSH
    chosen = from_properties(flushDiskType="SYNC_FLUSH")
    assert chosen.store.flush_disk_type is FlushDiskType.SYNC_FLUSH


def test_no_properties_are_the_defaults() -> None:
    assert from_properties() == BrokerConfig()


def test_the_keys_of_a_usual_file(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    config = from_properties(
        brokerClusterName="C1",
        brokerName="broker-b",
        brokerId="0",
        bindAddress="0.0.0.0",
        **REMOTE,
        brokerIP1="10.0.0.7",
        listenPort="12911",
        namesrvAddr="10.0.0.1:9876; 10.0.0.2:9876;10.0.0.1:9876;",
        storePathRootDir=root,
        storePathCommitLog=f"{root}/commitlog",
        storePathConsumeQueue=f"{root}/consumequeue/",
        brokerRole="SYNC_MASTER",
        haListenPort="12999",
        flushDiskType="SYNC_FLUSH",
        autoCreateTopicEnable="TRUE",
        autoCreateSubscriptionGroup="false",
        enablePropertyFilter="true",
        mappedFileSizeCommitLog="1048576",
        deleteWhen="04;16",
        fileReservedTime="48",
        maxMessageSize="65536",
        sendMessageThreadPoolNums="64",
    )
    assert config.address == "10.0.0.7:12911"
    assert config.ha_address == "10.0.0.7:12999"
    assert (config.store.store_host, config.store.store_port) == ("10.0.0.7", 12911)
    assert config.name_servers == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert config.store_root == root
    assert config.store.broker_role is BrokerRole.SYNC_MASTER
    assert config.store.commit_log_file_size == 1 << 20
    assert config.auto_create_topic is True
    assert not config.auto_create_group
    assert config.property_filter_enable


def test_unknown_keys_are_returned_in_order() -> None:
    _, unknown = BrokerConfig.from_properties({"zzz": "1", "brokerName": "b", "aaa": ""})
    assert unknown == ("zzz", "aaa")


def test_every_setting_comes_back_from_its_properties(tmp_path: Path) -> None:
    config = BrokerConfig(
        cluster_name="C",
        broker_id=3,
        listen_host="::1",
        name_servers=("a:1", "[::1]:2"),
        store_root=str(tmp_path),
        store=StoreConfig(broker_role=BrokerRole.SLAVE, store_host="::1", delete_when="1;2"),
        auto_create_topic=False,
        long_polling_enable=False,
        broker_permission=4,
    )
    assert BrokerConfig.from_properties(config.as_properties()) == (config, ())
    assert config.address == "[::1]:10911"


def test_every_field_has_a_property() -> None:
    fields = {field.name for field in dataclasses.fields(BrokerConfig)}
    assert set(BROKER_PROPERTIES.values()) == fields - {"store"}


def test_the_port_of_records_follows_the_port_that_was_chosen() -> None:
    config = BrokerConfig(listen_port=0)
    assert config.store.store_port == 0
    started = config.with_listen_port(40123)
    assert started.store.store_port == 40123
    assert started.address == "127.0.0.1:40123"


def test_a_home_directory_is_expanded() -> None:
    assert not BrokerConfig(store_root="~/here").store_root.startswith("~")
    assert BrokerConfig(store_root="relative/path").store_root == "relative/path"


# Other machines


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "fe80::1"])
def test_listening_to_others_needs_a_word(host: str) -> None:
    accounts: dict[str, Any] = {
        "acl_enable": True,
        "access_file": "access.json",
        "ha_auth_key_file": "ha.key",
    }
    for missing in ({}, {"allow_remote": True}, accounts):
        with pytest.raises(InvalidConfig, match="allowRemote=true, and aclEnable=true"):
            BrokerConfig(listen_host=host, **missing)
    config = BrokerConfig(listen_host=host, allow_remote=True, **accounts)
    assert config.auto_create_topic is False
    assert BrokerConfig(listen_host=host, allow_remote=True, auto_create_topic=True, **accounts)


@pytest.mark.parametrize("missing", ["allowRemote", "aclEnable"])
def test_metrics_for_others_need_the_same(missing: str) -> None:
    prom = {"metricsExporterType": "PROM", "metricsPromExporterHost": "10.1.2.3"}
    with pytest.raises(InvalidConfig, match="metricsTokenFile"):
        from_properties(**prom, **REMOTE)
    assert from_properties(**prom, **REMOTE, metricsAllowWithoutToken="true")
    prom["metricsTokenFile"] = "metrics.token"
    assert from_properties(**prom, **REMOTE).metrics_host == "10.1.2.3"
    given = {key: text for key, text in REMOTE.items() if key != missing}
    if missing == "aclEnable":
        given.pop("accessFile")
    with pytest.raises(InvalidConfig, match="metricsPromExporterHost"):
        from_properties(**prom, **given)


def test_an_empty_host_of_metrics_is_none() -> None:
    assert from_properties(metricsPromExporterHost=" ").metrics_host == "127.0.0.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    assert BrokerConfig(listen_host=host).auto_create_topic is True


def test_the_announced_address_is_the_listening_one() -> None:
    config = from_properties(bindAddress="10.1.2.3", **REMOTE)
    assert config.store.store_host == "10.1.2.3"
    assert from_properties(bindAddress="localhost").store.store_host == "127.0.0.1"


def test_every_interface_needs_an_address_to_tell() -> None:
    with pytest.raises(InvalidConfig, match=r"^broker.conf: brokerIP1='' .*clients can connect"):
        from_properties(bindAddress="0.0.0.0", **REMOTE)
    # A container that publishes its port on this machine.
    config = from_properties(bindAddress="0.0.0.0", brokerIP1="127.0.0.1", **REMOTE)
    assert config.address == "127.0.0.1:10911"


def test_an_address_without_a_listener_is_not_announced() -> None:
    with pytest.raises(InvalidConfig, match=r"brokerIP1=.10.0.0.7..*set bindAddress"):
        from_properties(brokerIP1="10.0.0.7")
    # On purpose: a forwarded port.
    config = from_properties(brokerIP1="10.0.0.7", bindAddress="127.0.0.1")
    assert config.address == "10.0.0.7:10911"


# Mistakes


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("brokerName", ""),
        ("brokerName", "a b"),
        ("brokerName", "../x"),
        ("brokerName", "n" * 101),
        ("brokerClusterName", "名"),
        ("brokerId", "-1"),
        ("brokerId", "1"),
        ("brokerId", "x"),
        ("regionId", ""),
        ("bindAddress", "example.org"),
        ("bindAddress", "0.0.0.0"),
        ("listenPort", "65536"),
        ("listenPort", "10911x"),
        ("namesrvAddr", "10.0.0.1"),
        ("namesrvAddr", "10.0.0.1:0"),
        ("namesrvAddr", "10.0.0.1:9876,10.0.0.2:9876"),
        ("brokerPermission", "7"),
        ("autoCreateTopicEnable", "yes"),
        ("defaultTopicQueueNums", "0"),
        ("defaultTopicQueueNums", "1025"),
        ("registerNameServerPeriod", "60001"),
        ("storePathRootDir", ""),
        ("flushDiskType", "sync"),
        ("brokerRole", "MASTER"),
        ("brokerRole", "SLAVE"),
        ("messageDelayLevel", "1x"),
        ("deleteWhen", "25"),
        ("mappedFileSizeCommitLog", "1G"),
        ("authenticationEnabled", "true"),
        ("enableDLegerCommitLog", "true"),
        ("storeType", "defaultRocksDB"),
        ("storePathCommitLog", "/elsewhere/commitlog"),
        ("topicsMax", "0"),
    ],
)
def test_a_bad_value_names_file_key_and_value(key: str, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        from_properties(**{key: text})
    error = caught.value
    if (key, text) == ("brokerRole", "SLAVE"):
        # Either of the two keys is wrong; the one that is missing is named.
        key, text = "brokerId", "0"
    assert error.source == "broker.conf"
    assert str(error).startswith(f"broker.conf: {key}=")
    assert (error.key, str(error.value)) in ((key, text), (key, text.split(";")[0]))
    assert error.accepted


@pytest.mark.parametrize(
    "fields",
    [
        {"listen_port": True},
        {"listen_port": "1"},
        {"listen_host": 5},
        {"name_servers": ["a:1"]},
        {"name_servers": (5,)},
        {"name_servers": tuple(f"h{i}:1" for i in range(65))},
        {"store": None},
        {"auto_create_topic": 1},
        {"trace_on": None},
        {"broker_id": 1},
        {"store": SLAVE},
        {"default_topic_queue_count": 9, "queues_per_topic_max": 8},
    ],
)
def test_bad_fields_are_refused_in_python(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        BrokerConfig(**fields)


def test_a_slave_has_an_id_of_its_own() -> None:
    config = BrokerConfig(store=SLAVE, broker_id=1)
    assert not config.is_master


def test_a_sync_master_needs_a_port_for_slaves() -> None:
    BrokerConfig.from_properties({"haListenPort": "-1"})
    with pytest.raises(InvalidConfig, match="need one"):
        BrokerConfig.from_properties({"haListenPort": "-1", "brokerRole": "SYNC_MASTER"})


def test_texts_only() -> None:
    properties: Any = {"listenPort": 10911}
    with pytest.raises(InvalidConfig, match="listenPort=10911"):
        BrokerConfig.from_properties(properties)


# Files


def test_a_file_from_an_operator(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(
        b"\xef\xbb\xbf# brokers\xe7\xbb\x84\r\n"
        b"brokerClusterName = C1\r\n"
        b"  brokerName:b-1  \r\n"
        b"! old\r\n"
        b"namesrvAddr=a:1;\\\r\n   b:2\r\n"
        b"brokerName=b-2"
    )
    properties = read_properties(str(path))
    assert properties == {
        "brokerClusterName": "C1",
        "brokerName": "b-2",
        "namesrvAddr": "a:1;b:2",
    }
    config, unknown = BrokerConfig.from_properties(properties, str(path))
    assert (config.broker_name, config.name_servers, unknown) == ("b-2", ("a:1", "b:2"), ())


def test_the_file_is_named_when_its_content_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("listenPort=abc\n")
    with pytest.raises(InvalidConfig) as caught:
        BrokerConfig.from_properties(read_properties(str(path)), str(path))
    assert str(path) in str(caught.value)
    assert "listenPort='abc'" in str(caught.value)


@pytest.mark.parametrize("kind", [BrokerConfig, StoreConfig, RemotingLimits])
def test_every_option_is_read_by_something(kind: type[Any]) -> None:
    package = Path(broker_core.__file__).parent
    declared_in = {"broker_config.py", "broker_properties.py", "config.py"}
    read = set()
    for path in package.rglob("*.py"):
        found = re.findall(r"\.([a-z]\w+)", path.read_text(encoding="utf-8"))
        # `self.name` in the class itself checks the value; it does not use it.
        read |= set(found) if path.name not in declared_in else set()
    own = read | set(re.findall(r"self\.([a-z]\w+)", _methods(kind)))
    assert {field.name for field in dataclasses.fields(kind)} - own == set()


def _methods(kind: type[Any]) -> str:
    """Source of the methods that others call; not of the checks after construction."""
    members = [member for name, member in vars(kind).items() if not name.startswith("__")]
    found = [member.fget if isinstance(member, property) else member for member in members]
    return "".join(inspect.getsource(member) for member in found if inspect.isfunction(member))
