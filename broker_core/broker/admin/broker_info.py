"""GET_BROKER_RUNTIME_INFO: counters and state of the broker.

Keys and number formats are RocketMQ's, because its tools read them. Parts that this broker does not
have (thread pools, locks, a timer wheel) are shown as idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.tables.broker_stats import BrokerStats, StoreRates
from broker_core.codec.wire.bodies.route_data import encode_kv_table
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import SCHEDULE_TOPIC
from broker_core.config import RemotingLimits
from broker_core.errors import CorruptRecord
from broker_core.protocol_codes import VERSION_4_9_8, PutStatus, RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.runtime.clock import Clock
from broker_core.store.message_store import MessageStore
from broker_core.store.store_stats import PUT_TIME_BOUNDS_MS

# Next offset to deliver, by delay level.
DelayOffsets = Callable[[], Mapping[int, int]]

VERSION_TEXT: Final = "V4_9_8"

_RATE_WINDOWS_S: Final = (10, 60, 600)
# RocketMQ's value without a pool of write buffers.
_NO_POOL: Final = (1 << 31) - 1
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class BrokerInfoProcessor:
    """Answers from counters; read-only."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        store: MessageStore,
        stats: BrokerStats,
        delay_offsets: DelayOffsets = dict,
        limits: RemotingLimits | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._store = store
        self._stats = stats
        self._delay_offsets = delay_offsets
        self._requests_max = (limits or RemotingLimits()).requests_max
        self._started_s = clock.monotonic()

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
        }

    def runtime_info(self) -> dict[str, str]:
        """Every key that RocketMQ's tools show."""
        counters = self._store.stats()
        return {
            **self._identity(),
            **_puts(counters),
            **self._rates(),
            **self._days(),
            **self._positions(counters),
            **self._disk(),
            **self._requests(),
            **self._delays(),
        }

    def _runtime_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=encode_kv_table(self.runtime_info()))

    def _identity(self) -> dict[str, str]:
        return {
            "bootTimestamp": str(self._stats.started_ms),
            "brokerActive": "true",
            "brokerVersion": str(VERSION_4_9_8),
            "brokerVersionDesc": VERSION_TEXT,
            "runtime": _duration(self._clock.monotonic() - self._started_s),
            "startAcceptSendRequestTimeStamp": "0",
        }

    def _rates(self) -> dict[str, str]:
        rates = [self._stats.store_rates(window_s) for window_s in _RATE_WINDOWS_S]
        transferred = _three(rates, lambda rate: rate.get_messages)
        return {
            "putTps": _three(rates, lambda rate: rate.put_messages),
            "getFoundTps": _three(rates, lambda rate: rate.gets_found),
            "getMissTps": _three(rates, lambda rate: rate.gets_missed),
            "getTotalTps": _three(rates, lambda rate: rate.gets_found + rate.gets_missed),
            # One spelling for tools of 4.x, one for tools of 5.x.
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
        }

    def _days(self) -> dict[str, str]:
        found = {}
        for kind, days in (("Put", self._stats.put_days()), ("Get", self._stats.get_days())):
            found[f"msg{kind}TotalYesterdayMorning"] = str(days.yesterday_morning)
            found[f"msg{kind}TotalTodayMorning"] = str(days.today_morning)
            found[f"msg{kind}TotalTodayNow"] = str(days.now)
        return found

    def _positions(self, counters: Mapping[str, Any]) -> dict[str, str]:
        end = counters["log_end"]
        buffers = counters["write_buffers_free"]
        return {
            "commitLogMinOffset": str(counters["log_start"]),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(end - counters["dispatched_position"]),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(self._earliest_ms(counters["log_start"])),
            "pageCacheLockTimeMills": "0",
            "remainHowManyDataToFlush": _size(end - counters["flushed_position"]),
            "remainTransientStoreBufferNumbs": str(_NO_POOL if buffers is None else buffers),
        }

    def _earliest_ms(self, log_start: int) -> int:
        try:
            first = self._store.message_at(log_start)
        except CorruptRecord:
            # Runtime info must not fail when the store does: it is used to find the cause.
            first = None
        return -1 if first is None else first.store_timestamp

    def _disk(self) -> dict[str, str]:
        usage = self._store.disk_usage()
        total = usage.used + usage.usable
        ratio = f"{usage.used / total if total else 0.0:.2f}"
        return {
            "commitLogDirCapacity": f"Total : {_size(total)}, Free : {_size(usage.usable)}.",
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
        }

    def _requests(self) -> dict[str, str]:
        """All zero: requests are handled as they are read, without queues."""
        found = {}
        for pool in ("send", "pull", "query"):
            found[f"{pool}ThreadPoolQueueSize"] = "0"
            found[f"{pool}ThreadPoolQueueCapacity"] = str(self._requests_max)
            found[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        found["EndTransactionQueueSize"] = "0"
        found["EndTransactionThreadPoolQueueCapacity"] = str(self._requests_max)
        return found

    def _delays(self) -> dict[str, str]:
        found = {
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }
        for level, offset in sorted(self._delay_offsets().items()):
            end = self._store.offsets(SCHEDULE_TOPIC, level - 1)[1]
            found[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return found


def _puts(counters: Mapping[str, Any]) -> dict[str, str]:
    count, size = counters["put_messages"], counters["put_bytes"]
    refused = sum(
        times for name, times in counters["put_statuses"].items() if not PutStatus[name].stored
    )
    classes: Mapping[str, int] = counters["put_time_distribution"]
    return {
        "putMessageTimesTotal": str(count),
        "putMessageSizeTotal": str(size),
        "putMessageAverageSize": str(size / count if count else 0.0),
        "putMessageEntireTimeMax": str(int(counters["put_time_max_ms"])),
        "putMessageDistributeTime": " ".join(f"[{name}]:{n}" for name, n in classes.items()),
        "putMessageFailedTimes": str(refused),
        "putLatency99": f"{_latency_ms(classes, 0.99):.2f}",
        "putLatency999": f"{_latency_ms(classes, 0.999):.2f}",
        "getMessageEntireTimeMax": str(int(counters["get_time_max_ms"])),
    }


def _latency_ms(classes: Mapping[str, int], share: float) -> float:
    """Upper bound of the class that holds the quantile `share`; the last class has none."""
    left = sum(classes.values()) * share
    if not left:
        return 0.0
    for bound, times in zip(PUT_TIME_BOUNDS_MS, classes.values(), strict=False):
        left -= times
        if left <= 0:
            return float(bound)
    return float(PUT_TIME_BOUNDS_MS[-1])


def _three(rates: list[StoreRates], of: Callable[[StoreRates], float]) -> str:
    return " ".join(str(round(of(rate), 4)) for rate in rates)


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"[ {days} days, {hour} hours, {minute} minutes, {second} seconds ]"


def _size(count: float) -> str:
    """`12.3 GiB`, as RocketMQ writes sizes."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"
