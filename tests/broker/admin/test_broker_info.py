"""Runtime info and configuration have every key that the tools read, with correct values."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.settings.property_file import parse_properties
from broker_core.codec.wire.bodies.route_data import decode_kv_table
from broker_core.config import RemotingLimits
from broker_core.protocol_codes import FlushDiskType, RequestCode
from broker_core.store.writes.message import Message
from tests.broker.admin_broker import AdminBroker

T0 = 1_700_000_000_000

# Section 9.3 of the protocol and what a broker of 4.9.7 shows.
_KEY_LINES = """
    EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity bootTimestamp brokerActive
    brokerVersion brokerVersionDesc commitLogDirCapacity commitLogDiskRatio commitLogMaxOffset
    commitLogMinOffset consumeQueueDiskRatio dispatchBehindBytes dispatchMaxBuffer
    earliestMessageTimeStamp getFoundTps getMessageEntireTimeMax getMissTps getTotalTps
    getTransferedTps getTransferredTps msgGetTotalTodayMorning msgGetTotalTodayNow
    msgGetTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgPutTotalYesterdayMorning pageCacheLockTimeMills pullThreadPoolQueueCapacity
    pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99 putLatency999
    putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes
    putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
    queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToFlush
    remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity
    sendThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize startAcceptSendRequestTimeStamp
    timerCongestNum timerDequeueTps timerEnqueueTps timerOffsetBehind timerReadBehind
"""
KEYS = frozenset(_KEY_LINES.split())


@pytest.fixture
def broker() -> Iterator[AdminBroker]:
    asked = AdminBroker()
    yield asked
    asked.close()


def info(broker: AdminBroker) -> dict[str, str]:
    answer = broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.code == 0
    return decode_kv_table(answer.body)


def test_a_new_broker_shows_every_key_at_once(broker: AdminBroker) -> None:
    found = info(broker)
    assert found.keys() == KEYS
    assert found["brokerVersionDesc"] == "V4_9_8"
    assert found["brokerVersion"] == "409"
    assert found["bootTimestamp"] == str(T0)
    assert found["earliestMessageTimeStamp"] == "-1"
    assert found["remainTransientStoreBufferNumbs"] == "2147483647"
    assert found["remainHowManyDataToFlush"] == "0 B"
    assert found["putMessageAverageSize"] == found["putLatency99"].rstrip("0") + "0"
    assert found["sendThreadPoolQueueCapacity"] == str(RemotingLimits().requests_max)


@pytest.mark.parametrize(
    "key",
    ["putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps", "getTransferredTps"],
)
def test_rates_are_three_numbers(broker: AdminBroker, key: str) -> None:
    # Tools split at the spaces and parse each.
    assert [float(part) for part in info(broker)[key].split(" ")] == [0.0, 0.0, 0.0]


def test_numbers_are_numbers(broker: AdminBroker) -> None:
    broker.put("T1", 3)
    found = info(broker)
    texts = {
        "brokerActive", "brokerVersionDesc", "commitLogDirCapacity", "putMessageDistributeTime",
        "remainHowManyDataToFlush", "runtime",
    }  # fmt: skip
    for key in KEYS - texts:
        for part in found[key].split(" "):
            float(part)
    assert 0.0 <= float(found["commitLogDiskRatio"]) <= 1.0


def test_puts_and_gets_are_counted(broker: AdminBroker) -> None:
    broker.put("T1", 3, step_ms=1_000)
    broker.stats.put("T1", 3, 12)
    assert not broker.store.append(Message("T1", b"x" * (5 << 20))).ok
    broker.store.get("T1", 0, 0)
    broker.store.get("T1", 0, 3)
    broker.stats.got("G", "T1", 3, 12)
    broker.clock.advance(8_000)
    found = info(broker)
    start, end = broker.store.log_range
    assert found["putTps"] == "0.3 0.3 0.3"
    assert found["getFoundTps"] == found["getMissTps"] == "0.1 0.1 0.1"
    assert found["getTotalTps"] == "0.2 0.2 0.2"
    assert found["getTransferedTps"] == found["getTransferredTps"] == "0.3 0.3 0.3"
    assert found["putMessageTimesTotal"] == "3"
    assert found["putMessageSizeTotal"] == str(end)
    assert found["putMessageAverageSize"] == str(end / 3)
    assert found["putMessageFailedTimes"] == "1"
    assert found["putMessageDistributeTime"].startswith("[<=0.1ms]:3 [<=1ms]:0 ")
    assert found["putLatency99"] == "0.10"
    assert (found["msgPutTotalTodayNow"], found["msgGetTotalTodayNow"]) == ("3", "3")
    assert (found["commitLogMinOffset"], found["commitLogMaxOffset"]) == (str(start), str(end))
    assert found["earliestMessageTimeStamp"] == str(T0)
    assert found["runtime"] == "[ 0 days, 0 hours, 0 minutes, 10 seconds ]"


def test_what_is_not_flushed_and_not_dispatched_is_shown() -> None:
    settings = {"transient_pool_enable": True, "flush_disk_type": FlushDiskType.ASYNC_FLUSH}
    broker = AdminBroker({**settings, "transient_pool_size": 3})
    broker.put("T1", 1)
    visible = broker.store.log_range[1]
    broker.store.append(Message("T1", b"x" * 2_000))
    behind = broker.store.log_range[1] - visible
    found = info(broker)
    assert found["dispatchBehindBytes"] == str(behind)
    assert found["remainHowManyDataToFlush"] == f"{behind / 1024:.1f} KiB"
    assert found["remainTransientStoreBufferNumbs"] == "2"
    broker.close()


def test_running_time(broker: AdminBroker) -> None:
    broker.clock.advance(((26 * 60 + 3) * 60 + 4) * 1_000)
    assert info(broker)["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"


def test_delay_levels_that_were_used(broker: AdminBroker) -> None:
    broker.put("SCHEDULE_TOPIC_XXXX", 5, queue_id=2)
    broker.delay_offsets.update({3: 4, 1: 0})
    found = info(broker)
    assert found["scheduleMessageOffset_1"] == "0,0"
    assert found["scheduleMessageOffset_3"] == "4,5"
    assert found.keys() - KEYS == {"scheduleMessageOffset_1", "scheduleMessageOffset_3"}


def test_disk_space(broker: AdminBroker) -> None:
    usage = broker.store.disk_usage()
    found = info(broker)
    ratio = usage.used / (usage.used + usage.usable)
    assert found["commitLogDiskRatio"] == found["consumeQueueDiskRatio"] == f"{ratio:.2f}"
    assert found["commitLogDirCapacity"].startswith("Total : ")
    assert found["commitLogDirCapacity"].endswith("iB.")


def test_the_configuration_can_be_read_back() -> None:
    broker = AdminBroker(broker_name="broker-b", name_servers=("127.0.0.1:9876", "[::1]:9876"))
    answer = broker.ask(RequestCode.GET_BROKER_CONFIG)
    assert answer.code == 0
    assert json.loads(answer.ext["version"]) == {
        "counter": 0,
        "stateVersion": 0,
        "timestamp": T0,
    }
    properties = parse_properties(bytes(answer.body).decode())
    assert properties["brokerName"] == "broker-b"
    assert properties["namesrvAddr"] == "127.0.0.1:9876;[::1]:9876"
    assert BrokerConfig.from_properties(properties) == (broker.config, ())
    broker.close()
