"""Metrics of a broker, with the names of Apache's broker.

Read from the tables at each scrape, on the event loop, with limits on the work. No message, key or
secret is ever part of a sample. `text.py` renders the samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.context import BrokerContext
from broker_core.broker.pop.feature import PopFeature
from broker_core.broker.scheduled.feature import ScheduledFeature
from broker_core.broker.scheduled.timer_message import TIMER_QUEUE
from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.tables.broker_stats import Histogram
from broker_core.broker.transactions.feature import TransactionsFeature
from broker_core.broker.transactions.service import Verdict
from broker_core.codec.wire.system_topics import is_owned
from broker_core.codec.wire.topic_name import TIMER_TOPIC
from broker_core.errors import RmqError
from broker_core.protocol_codes import LanguageCode
from broker_core.remoting.limits.request_budget import RequestBudget
from broker_core.remoting.request_timing import BUCKETS_MS, RequestTiming

# Samples of one metric and queues with a lag, per scrape.
SERIES_MAX: Final = 10_000
QUEUES_MAX: Final = 20_000
# Reads of the log per scrape, for the age of the oldest unconsumed message of a group.
AGES_MAX: Final = 1_000

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"


_BEHIND: Final = {
    "lag_messages": "messages that a group has not acknowledged",
    "ready_messages": "messages not yet delivered to a group",
    "inflight_messages": "messages delivered to a group and not acknowledged",
    "lag_latency": "ms since the oldest unacknowledged message of the longest queue was stored",
    "queueing_latency": "ms since the oldest undelivered message of the longest queue was stored",
}


class Sample(NamedTuple):
    """One value; for a histogram the counts of its buckets and its sum."""

    labels: tuple[str, ...]
    value: float
    buckets: tuple[int, ...] = ()


class Metric(NamedTuple):
    """One name with all its samples. A counter's name ends with `_total`."""

    name: str
    kind: str
    text: str
    label_names: tuple[str, ...]
    samples: list[Sample]
    bounds: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class MetricSources:
    """The features whose counters are shown."""

    pop: PopFeature
    scheduled: ScheduledFeature
    transactions: TransactionsFeature
    sinks: SinkBatches
    replication_status: Callable[[], Mapping[str, Any]]


class BrokerMetrics:
    """Reads one running broker. `refused()` counts requests that access control rejected."""

    def __init__(
        self,
        context: BrokerContext,
        sources: MetricSources,
        budget: RequestBudget,
        timing: RequestTiming | None,
        refused: Callable[[], int],
    ) -> None:
        self._context = context
        self._sources = sources
        self._budget = budget
        self._timing = timing
        self._refused = refused
        self._left_out = 0

    def collect(self) -> list[Metric]:
        """All metrics, with the labels of the node first."""
        self._left_out = 0
        config = self._context.config
        node = (config.cluster_name, "broker", config.broker_name)
        found = [*self._traffic(), *self._lags(), *self._store(), *self._clients()]
        found += [*self._waiting(), *self._timers(), *self._replication(), *self._requests()]
        found.append(
            _gauge("rmq_metrics_left_out_series", "samples over the limit", [((), self._left_out)])
        )
        return [
            metric._replace(
                label_names=("cluster", "node_type", "node_id", *metric.label_names),
                samples=[
                    sample._replace(labels=(*node, *sample.labels)) for sample in metric.samples
                ],
            )
            for metric in found
        ]

    # Traffic

    def _traffic(self) -> Iterator[Metric]:
        stats = self._context.stats.stats()
        puts: Mapping[str, Mapping[str, int]] = stats["topic_put"]
        gets = {_split(key): entry for key, entry in stats["group_get"].items()}
        by_topic = ("topic", "is_system")
        by_group = ("topic", "consumer_group", "is_system")
        for name, column, text in (
            ("messages", "messages", "messages"),
            ("throughput", "bytes", "bytes of messages"),
        ):
            yield self._counter(
                f"rocketmq_{name}_in_total",
                f"{text} that were stored",
                by_topic,
                (((topic, _system(topic)), entry[column]) for topic, entry in puts.items()),
            )
            yield self._counter(
                f"rocketmq_{name}_out_total",
                f"{text} that were delivered to consumers",
                by_group,
                (((*key, _system(key[0])), entry[column]) for key, entry in gets.items()),
            )
        yield self._counter(
            "rocketmq_send_to_dlq_messages_total",
            "messages that became dead letters",
            ("topic", "consumer_group"),
            ((_split(key), count) for key, count in stats["dlq"].items()),
        )
        yield self._counter(
            "rmq_messages_sent_back_total",
            "messages that consumers sent back",
            ("topic", "consumer_group"),
            ((_split(key), count) for key, count in stats["send_back"].items()),
        )

    # Consumer lag

    def _lags(self) -> Iterator[Metric]:
        counts: dict[str, list[tuple[tuple[str, str], int]]] = {name: [] for name in _BEHIND}
        queues = 0
        for group in self._context.groups.all():
            for topic in sorted(self._context.offsets.topics_of(group.name)):
                progress = self._context.offsets.queues_of(group.name, topic)
                queues += len(progress)
                if queues > QUEUES_MAX or len(counts["lag_messages"]) >= SERIES_MAX:
                    self._left_out += 1
                    continue
                key = (topic, group.name)
                lag = self._behind(topic, progress)
                pulled = {
                    queue_id: max(offset, self._pulled_until(group.name, topic, queue_id))
                    for queue_id, offset in progress.items()
                }
                ready = self._behind(topic, pulled)
                counts["lag_messages"].append((key, lag[0]))
                counts["ready_messages"].append((key, ready[0]))
                counts["inflight_messages"].append((key, max(lag[0] - ready[0], 0)))
                if len(counts["lag_latency"]) < AGES_MAX:
                    counts["lag_latency"].append((key, self._age_ms(lag[0], topic, *lag[1:])))
                    age_ms = self._age_ms(ready[0], topic, *ready[1:])
                    counts["queueing_latency"].append((key, age_ms))
        for name, text in _BEHIND.items():
            names = ("topic", "consumer_group")
            yield self._gauge(f"rocketmq_consumer_{name}", text, names, counts[name])

    def _pulled_until(self, group: str, topic: str, queue_id: int) -> int:
        tallies = self._context.stats.tallies
        return 0 if tallies is None else tallies.pulled_until(group, topic, queue_id)

    def _behind(self, topic: str, progress: Mapping[int, int]) -> tuple[int, int, int]:
        """Lag of all queues; then the queue with the largest lag, and its offset."""
        total, worst, place = 0, -1, (0, 0)
        for queue_id, offset in progress.items():
            low, high = self._context.store.offsets(topic, queue_id)
            behind = max(high - max(offset, low), 0)
            total += behind
            if behind > worst:
                worst, place = behind, (queue_id, max(offset, low))
        return total, *place

    def _age_ms(self, lag: int, topic: str, queue_id: int, offset: int) -> int:
        if lag <= 0:
            return 0
        try:
            stored_ms = self._context.store.store_time(topic, queue_id, offset)
        except RmqError:
            # A damaged record is reported when it is read, not by a scrape.
            stored_ms = None
        return 0 if stored_ms is None else max(self._context.clock.wall_ms() - stored_ms, 0)

    # The store

    def _store(self) -> Iterator[Metric]:
        store, config = self._context.store, self._context.settings.config
        start, end = store.log_range
        usage = store.disk_usage()
        for name, text, value in (
            ("rocketmq_broker_permission", "2 write, 4 read", config.broker_permission),
            ("rocketmq_storage_message_reserve_time", "ms since the oldest", self._kept_ms(start)),
            ("rocketmq_topic_number", "topics", len(self._context.topics)),
            ("rocketmq_consumer_group_number", "consumer groups", len(self._context.groups)),
            ("rocketmq_storage_size", "bytes of the commit log", end - start),
            (
                "rocketmq_storage_flush_behind_bytes",
                "bytes that are not synced yet",
                max(end - store.flushed_position, 0),
            ),
            (
                "rocketmq_storage_dispatch_behind_bytes",
                "bytes not yet dispatched to consume queues",
                max(end - store.dispatched_position, 0),
            ),
            ("rmq_storage_disk_used_bytes", "of the partition", usage.used),
            ("rmq_storage_disk_usable_bytes", "of the partition", usage.usable),
            ("rmq_storage_fenced", "1 after a failed sync", int(store.fenced)),
            ("rmq_consumer_offsets", "stored offsets", len(self._context.offsets)),
        ):
            yield _gauge(name, text, [((), value)])

    def _kept_ms(self, log_start: int) -> int:
        try:
            first = self._context.store.message_at(log_start)
        except RmqError:
            first = None
        if first is None:
            return 0
        return max(self._context.clock.wall_ms() - first.store_timestamp, 0)

    # Clients

    def _clients(self) -> Iterator[Metric]:
        clients = self._context.clients
        consumers: dict[tuple[str, ...], int] = {}
        producers: dict[tuple[str, ...], int] = {}
        for name in clients.consumer_groups():
            group = clients.consumers(name)
            for member in () if group is None else group.members.values():
                key = (name, LanguageCode(member.language).name.lower(), str(member.version))
                consumers[key] = consumers.get(key, 0) + 1
        for name in clients.producer_groups():
            for member in clients.producers(name):
                kind = (LanguageCode(member.language).name.lower(), str(member.version))
                producers[kind] = producers.get(kind, 0) + 1
        yield self._gauge(
            "rocketmq_consumer_connections",
            "members of consumer groups",
            ("consumer_group", "language", "version"),
            consumers.items(),
        )
        yield self._gauge(
            "rocketmq_producer_connections",
            "members of producer groups",
            ("language", "version"),
            producers.items(),
        )
        for name, text, value in (
            ("rmq_connections", "open connections", self._budget.connections),
            ("rmq_requests_in_flight", "requests without an answer", self._budget.requests),
            ("rmq_requests_in_flight_bytes", "their bytes", self._budget.size),
            ("rmq_requests_held", "requests that wait for messages", self._budget.held.count),
            ("rmq_requests_held_bytes", "their bytes", self._budget.held.size),
            (
                "rmq_pop_inflight_messages",
                "messages that were popped and not acknowledged yet",
                self._sources.pop.ledgers.in_flight_count,
            ),
            ("rmq_pops_waiting", "pops that wait for messages", len(self._sources.pop.pending)),
        ):
            yield _gauge(name, text, [((), value)])

    # Pending work

    def _waiting(self) -> Iterator[Metric]:
        transactions = self._sources.transactions.service
        halves = transactions.window.open_count if transactions.is_running else 0
        yield _gauge("rocketmq_half_messages", "transactions without an end", [((), halves)])
        for name, verdict in (("commit", Verdict.COMMIT), ("rollback", Verdict.ROLLBACK)):
            count = transactions.ended_counts[verdict]
            text = "ended transactions by outcome"
            yield Metric(f"rocketmq_{name}_messages_total", COUNTER, text, (), [Sample((), count)])
        tallies = self._context.stats.tallies
        if tallies is not None:
            text = "seconds from the birth of a message to the end of its transaction"
            yield _histogram("rocketmq_finish_message_latency", text, tallies.finish_s)
            text = "seconds by which timer messages are ahead when they are sorted in"
            yield _histogram("rocketmq_delay_message_latency", text, tallies.delays_s)
            text = "bytes of stored messages"
            yield _histogram("rocketmq_message_size", text, tallies.message_sizes)
        for name, text, value in (
            (
                "rmq_delayed_messages",
                "messages of delay levels",
                self._sources.scheduled.delayed.pending_count,
            ),
            ("rmq_sinks", "sinks whose batches are remembered", len(self._sources.sinks)),
        ):
            yield _gauge(name, text, [((), value)])

    def _timers(self) -> Iterator[Metric]:
        timers = self._sources.scheduled.timers
        yield self._gauge(
            "rocketmq_timing_messages",
            "timer messages that wait",
            ("topic",),
            (((topic,), count) for topic, count in timers.pending_by_topic.items()),
        )
        behind_ms = self._age_ms(timers.queue_behind, TIMER_TOPIC, TIMER_QUEUE, timers.queue_offset)
        for name, text, value in (
            (
                "rocketmq_timer_enqueue_lag",
                "timer messages that are not sorted in yet",
                timers.queue_behind,
            ),
            ("rocketmq_timer_enqueue_latency", "ms since the first of them was stored", behind_ms),
            (
                "rocketmq_timer_dequeue_latency",
                "ms by which the next timer message is late",
                timers.late_ms,
            ),
        ):
            yield _gauge(name, text, [((), value)])
        for name, text, value in (
            ("enqueue", "timer messages that were sorted in", timers.entered_count),
            ("dequeue", "timer messages that were delivered", timers.delivered_count),
        ):
            samples = [Sample((), value)]
            yield Metric(f"rocketmq_timer_{name}_total", COUNTER, text, (), samples)

    def _replication(self) -> Iterator[Metric]:
        status = self._sources.replication_status()
        yield _gauge("rmq_replication_epoch", "of the master", [((), status["epoch"])])
        slaves: Iterable[Mapping[str, Any]] = status.get("slaves", ())
        yield self._gauge(
            "rmq_replication_lag_bytes",
            "bytes that a slave has not confirmed",
            ("slave",),
            (((str(slave["address"]),), slave["lag_bytes"]) for slave in slaves),
        )
        yield self._gauge(
            "rmq_replication_lag_messages",
            "messages that a slave has not confirmed, approximately",
            ("slave",),
            (((str(slave["address"]),), slave["lag_messages"]) for slave in slaves),
        )
        in_sync = sum(1 for slave in slaves if slave["in_sync"])
        yield _gauge("rmq_replication_in_sync_slaves", "slaves that keep up", [((), in_sync)])

    # Requests

    def _requests(self) -> Iterator[Metric]:
        if self._timing is not None:
            samples = [
                Sample((str(int(code)),), found.sum_ms, tuple(found.buckets))
                for code, found in sorted(self._timing.latencies.items())
            ]
            text = f"ms until the answer; buckets up to {BUCKETS_MS[-1]} ms"
            yield Metric(
                "rocketmq_rpc_latency", HISTOGRAM, text, ("request_code",), samples, BUCKETS_MS
            )
            slow = [Sample((), self._timing.slow_count)]
            yield Metric(
                "rmq_slow_requests_total", COUNTER, "over slowRequestThresholdMs", (), slow
            )
        refused = [Sample((), self._refused())]
        yield Metric("rmq_access_denied_total", COUNTER, "refused requests", (), refused)

    def _counter(
        self, name: str, text: str, names: tuple[str, ...], values: Iterable[tuple[Any, float]]
    ) -> Metric:
        return Metric(name, COUNTER, text, names, self._bounded(values))

    def _gauge(
        self, name: str, text: str, names: tuple[str, ...], values: Iterable[tuple[Any, float]]
    ) -> Metric:
        return Metric(name, GAUGE, text, names, self._bounded(values))

    def _bounded(self, values: Iterable[tuple[Any, float]]) -> list[Sample]:
        samples: list[Sample] = []
        for labels, value in values:
            if len(samples) >= SERIES_MAX:
                self._left_out += 1
            else:
                samples.append(Sample(tuple(labels), value))
        return samples


def _gauge(name: str, text: str, values: list[tuple[tuple[str, ...], float]]) -> Metric:
    return Metric(name, GAUGE, text, (), [Sample(*value) for value in values])


def _histogram(name: str, text: str, found: Histogram) -> Metric:
    sample = Sample((), found.total, tuple(found.buckets))
    return Metric(name, HISTOGRAM, text, (), [sample], found.bounds)


def _split(key: str) -> tuple[str, str]:
    """`topic@group`; neither has an @ in its name."""
    topic, at, group = key.partition("@")
    return (topic, group) if at else ("", topic)


def _system(topic: str) -> str:
    return "true" if is_owned(topic) or topic.startswith("%") else "false"
