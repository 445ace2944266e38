"""Settings of a running broker: options that may change at run time, and the refusal of all
others."""

from __future__ import annotations

import errno
import logging
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.settings.broker_properties import BROKER_PROPERTIES, FIXED_PROPERTIES
from broker_core.broker.settings.live_settings import LIVE_PROPERTIES, LIVE_SETTINGS_FILE
from broker_core.codec.json.dialect import parse_json
from broker_core.config import PROPERTY_NAMES
from broker_core.errors import DiskFailed
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.storage.files.json_table import JsonTable
from tests.broker.admin_broker import AdminBroker
from tests.broker.running_broker import UNIQUE, broker_config, running, until

Run = Callable[..., Any]
GET = RequestCode.GET_BROKER_CONFIG
UPDATE = RequestCode.UPDATE_BROKER_CONFIG


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker()
    yield asked
    asked.close()


def shown(broker: AdminBroker) -> dict[str, str]:
    lines = bytes(broker.ask(GET).body).decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_live_setting_changes_and_is_shown(broker: AdminBroker) -> None:
    before = parse_json(broker.ask(GET).ext["version"].encode())
    answer = broker.ask(UPDATE, b"brokerPermission=4\ntransactionCheckMax = 3\n")
    assert answer.code == 0, answer.remark
    assert (shown(broker)["brokerPermission"], shown(broker)["transactionCheckMax"]) == ("4", "3")
    assert broker.settings.config.broker_permission == 4
    after = parse_json(broker.ask(GET).ext["version"].encode())
    assert after["counter"] == before["counter"] + 1


def test_listeners_are_notified_once(broker: AdminBroker) -> None:
    heard: list[Any] = []
    broker.settings.on_change(heard.append)
    broker.ask(UPDATE, b"autoCreateTopicEnable=false\n")
    broker.ask(UPDATE, b"autoCreateTopicEnable=false\n")
    assert [config.auto_create_topic for config in heard] == [False]


def test_no_other_setting_of_ours_can_be_changed(broker: AdminBroker) -> None:
    before = shown(broker)
    ours = BROKER_PROPERTIES.keys() | PROPERTY_NAMES.keys() | FIXED_PROPERTIES.keys()
    assert len(ours) > 80
    for key in sorted(ours - LIVE_PROPERTIES):
        answer = broker.ask(UPDATE, f"brokerPermission=4\n{key}=something else\n".encode())
        assert answer.code == ResponseCode.NO_PERMISSION, key
        assert key in (answer.remark or "") and "broker.conf" in (answer.remark or "")
    assert shown(broker) == before, "all or nothing"


def test_a_whole_configuration_sent_back_is_taken(broker: AdminBroker) -> None:
    body = bytes(broker.ask(GET).body)
    assert broker.ask(UPDATE, body).code == 0


def test_unknown_keys_are_logged(broker: AdminBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert broker.ask(UPDATE, b"noSuchKey=1\nsendMessageThreadPoolNums=9\n").code == 0
    assert "noSuchKey" in caplog.text


@pytest.mark.parametrize(
    "body",
    [b"brokerPermission=9", b"brokerPermission=x", b"transactionTimeOut=-1",
     b"transactionTimeOut=" + b"9" * 5_000, b"longPollingEnable=maybe", b"\xff\xfe=1",
     b"shortPollingTimeMills=0", b"brokerPermission=\\u00", b"a" * 70_000],
)  # fmt: skip
def test_bad_values_change_nothing(broker: AdminBroker, body: bytes) -> None:
    before = shown(broker)
    answer = broker.ask(UPDATE, body)
    assert answer.code == ResponseCode.INVALID_PARAMETER, answer.remark
    assert len(answer.remark or "") < 1_100
    assert shown(broker) == before


def test_changes_take_effect_at_once(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            assert (await asker.send("T")).code == 0
            assert (await asker.ask(UPDATE, b"brokerPermission=4\n")).code == 0
            assert (await asker.send("T")).code == ResponseCode.NO_PERMISSION
            assert (await asker.send("Other")).code == ResponseCode.NO_PERMISSION
            assert asker.broker.context.topics.find("Other") is None
            assert (await asker.pull("T")).code in (0, 19)
            assert (await asker.ask(UPDATE, b"brokerPermission=2\n")).code == 0
            assert (await asker.pull("T")).code == ResponseCode.NO_PERMISSION
            assert (await asker.ask(UPDATE, b"brokerPermission=6\n")).code == 0
            assert (await asker.send("T")).code == 0
            assert (await asker.ask(UPDATE, b"autoCreateTopicEnable=false\n")).code == 0
            assert (await asker.send("New")).code == ResponseCode.TOPIC_NOT_EXIST
            assert (await asker.ask(UPDATE, b"autoCreateTopicEnable=true\n")).code == 0
            assert (await asker.send("New")).code == 0

    run_async(scenario())


# Kept


def test_changes_outlive_a_restart(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path)
        async with running(config) as asker:
            changes = b"brokerPermission=4\nfileReservedTime=96\nautoCreateTopicEnable=false\n"
            assert (await asker.ask(UPDATE, changes)).code == 0
            assert (await asker.ask(UPDATE, b"autoCreateTopicEnable=true\n")).code == 0
        file = tmp_path / LIVE_SETTINGS_FILE
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        for _ in range(2):
            async with running(config) as asker:
                assert (await asker.send("T")).code == ResponseCode.NO_PERMISSION
                lines = bytes((await asker.ask(GET)).body).decode().splitlines()
                assert {"brokerPermission=4", "fileReservedTime=96"} < set(lines)
                assert "liveSettings=brokerPermission,fileReservedTime" in lines
        # An empty value takes a setting back to what is configured.
        async with running(config) as asker:
            assert (await asker.ask(UPDATE, b"brokerPermission=\nfileReservedTime=72\n")).code == 0
            assert (await asker.send("T")).code == 0
            assert b"liveSettings" not in bytes((await asker.ask(GET)).body)
        async with running(config) as asker:
            assert (await asker.send("T")).code == 0

    run_async(scenario())


def test_a_configuration_that_was_changed_later_wins(
    tmp_path: Path, run_async: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.ask(UPDATE, b"brokerPermission=4\ntransactionCheckMax=3\n")
        async with running(broker_config(tmp_path, brokerPermission="2")) as asker:
            settings = asker.broker.context.settings
            assert settings.config.broker_permission == 2
            assert dict(settings.changed) == {"transactionCheckMax": "3"}

    run_async(scenario())
    assert "brokerPermission is 2 as configured now" in caplog.text


def test_a_change_that_ended_never_comes_back(tmp_path: Path, run_async: Run) -> None:
    """A changed configuration file overrides a live setting, also when it returns to the old
    value."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.ask(UPDATE, b"brokerPermission=4\ntransactionCheckMax=3\n")
        async with running(broker_config(tmp_path, brokerPermission="2")) as asker:
            assert asker.broker.context.settings.config.broker_permission == 2
        async with running(broker_config(tmp_path)) as asker:
            settings = asker.broker.context.settings
            assert settings.config.broker_permission == 6
            assert dict(settings.changed) == {"transactionCheckMax": "3"}
            assert (await asker.send("T")).code == 0

    run_async(scenario())


def test_creation_can_be_allowed_with_as_many_topics_as_there_may_be(
    tmp_path: Path, run_async: Run
) -> None:
    """The template belongs to the broker; a start that would not find room for it must not fail."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path, autoCreateTopicEnable="false")) as asker:
            count = len(asker.broker.context.topics)
        full = broker_config(tmp_path, autoCreateTopicEnable="false", topicsMax=str(count))
        async with running(full) as asker:
            answer = await asker.ask(UPDATE, b"autoCreateTopicEnable=true\n")
            assert answer.code == 0, answer.remark
            assert (await asker.send("New")).code != 0
        async with running(full) as asker:
            assert asker.broker.context.settings.config.auto_create_topic

    run_async(scenario())


def test_a_failing_listener_does_not_stop_the_others(broker: AdminBroker) -> None:
    heard: list[Any] = []

    def fails(config: Any) -> None:
        raise DiskFailed("no room for a table")

    broker.settings.on_change(fails)
    broker.settings.on_change(heard.append)
    answer = broker.ask(UPDATE, b"brokerPermission=4\n")
    assert answer.code != 0 and "no room" in (answer.remark or "")
    assert [config.broker_permission for config in heard] == [4]
    assert shown(broker)["brokerPermission"] == "4"


@pytest.mark.parametrize(
    "settings",
    [
        {"brokerPermission": {"value": "9", "configured": "6"}},
        {"brokerPermission": "4"},
        {"brokerPermission": {"value": 4, "configured": "6"}},
        {"storePathRootDir": {"value": "/etc", "configured": "x"}},
        [],
        None,
    ],
)
def test_a_file_with_nonsense_changes_nothing(broker: AdminBroker, settings: Any) -> None:
    JsonTable(broker.disk, LIVE_SETTINGS_FILE).save({"settings": settings})
    before = shown(broker)
    broker.settings.resume()
    assert shown(broker) == before


def test_a_start_continues_when_a_change_cannot_be_removed(broker: AdminBroker) -> None:
    kept = {"value": "3", "configured": shown(broker)["transactionCheckMax"]}
    outdated = {"value": "4", "configured": "0"}
    table = JsonTable(broker.disk, LIVE_SETTINGS_FILE)
    table.save({"settings": {"brokerPermission": outdated, "transactionCheckMax": kept}})
    before = broker.disk.operation_count
    table.load()
    reading = broker.disk.operation_count - before
    broker.disk.fail(broker.disk.operation_count + reading + 1, errno.EIO)
    broker.settings.resume()
    assert dict(broker.settings.changed) == {"transactionCheckMax": "3"}
    assert shown(broker)["brokerPermission"] == "6"


def test_a_change_that_cannot_be_kept_did_not_happen(broker: AdminBroker) -> None:
    heard: list[Any] = []
    broker.settings.on_change(heard.append)
    before = shown(broker)
    broker.disk.fail(broker.disk.operation_count + 1, errno.EIO)
    answer = broker.ask(UPDATE, b"brokerPermission=4\n")
    assert answer.code != 0
    assert (shown(broker), heard) == (before, [])


def test_retention_follows(tmp_path: Path, run_async: Run) -> None:
    """Shorter only while no timer waits, whose record would go before its time."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            assert (await asker.ask(UPDATE, b"fileReservedTime=24\ndeleteWhen=05;17\n")).code == 0
            later = f"TIMER_DELAY_SEC\x013600\x02UNIQ_KEY\x01{UNIQUE}\x02"
            assert (await asker.send("T", text=later)).code == 0
            timers = asker.broker.features.scheduled.timers
            await until(lambda: timers.pending_count == 1)
            refused = await asker.ask(UPDATE, b"fileReservedTime=12\n")
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert "1 timer messages wait" in (refused.remark or "")
            assert (await asker.ask(UPDATE, b"fileReservedTime=48\n")).code == 0
            limits = asker.broker.context.store._upkeep._retention._limits
            assert (limits.reserved_hours, limits.delete_hours) == (48, frozenset({5, 17}))
        async with running(broker_config(tmp_path)) as asker:
            await until(lambda: asker.broker.features.scheduled.timers.pending_count == 1)

    run_async(scenario())


def test_creation_can_be_allowed_where_it_never_was(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, autoCreateTopicEnable="false")) as asker:
            assert (await asker.send("New")).code == ResponseCode.TOPIC_NOT_EXIST
            assert (await asker.ask(UPDATE, b"autoCreateTopicEnable=true\n")).code == 0
            assert (await asker.send("New")).code == 0
            await asker.ask(UPDATE, b"autoCreateSubscriptionGroup=false\n")
            refused = await asker.pull("New", consumerGroup="nobody")
            assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    run_async(scenario())
