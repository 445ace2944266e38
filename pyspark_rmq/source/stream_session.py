"""Driver side of a streaming query: its start, and the end of the next batch. No Spark.

Runs on the client's event loop. Its state (last look, reported problems) only saves requests and
log lines; a batch is fully described by the two positions that Spark stores.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker_core import ClientInstance, MessageQueue, errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.arrival_watch import ArrivalWatch
from pyspark_rmq.source.compacted_topics import says_compacted
from pyspark_rmq.source.dead_letter_check import DeadLetterCheck
from pyspark_rmq.source.filter_check import FilterCheck
from pyspark_rmq.source.offsets.data_loss import (
    NEW_STORE_REMEDY,
    describe_deleted,
    describe_lost,
    describe_unknown_loss,
    report_loss,
)
from pyspark_rmq.source.offsets.gone_queues import ask_remains, describe_unread, unread_of
from pyspark_rmq.source.offsets.offset_lookup import OffsetLookup
from pyspark_rmq.source.offsets.offset_planning import ROW_SIZE_DEFAULT, QueueRange, limited
from pyspark_rmq.source.offsets.stream_position import StoreIdentity, StreamOffset
from pyspark_rmq.source.offsets.topic_discovery import TopicDiscovery
from pyspark_rmq.source.retry import is_passing, pause

_log = logging.getLogger(__name__)

# How long a topic that was read may be unknown to all name servers before it counts as deleted.
TOPIC_GRACE_S: Final = 30.0
NAMELESS: Final = StoreIdentity()
_SAMPLE_INTERVAL_S: Final = 60.0
_LOOK_AGAIN_S: Final = 0.2


class Limits(NamedTuple):
    """Limits of one batch; None: no limit."""

    rows: int | None = None
    size: int | None = None
    rows_min: int | None = None


class Seen(NamedTuple):
    """Answers of brokers at one moment."""

    ends: Mapping[MessageQueue, int]
    stores: Mapping[str, StoreIdentity]
    at_slaves: Collection[str] = ()
    """Brokers whose slave answered, because the master is not reachable."""
    silent: Mapping[str, errors.RmqError] = MappingProxyType({})
    """Brokers that did not answer, or whose master is needed, with the reason."""
    has_run: Mapping[str, bool] = MappingProxyType({})
    """Broker -> whether its log has everything that was read before, if it knows."""
    same: Mapping[MessageQueue, int] = MappingProxyType({})
    """Queues of brokers that lack some of it -> up to where they are the same, if it is known."""

    def since(self, start: StreamOffset) -> Seen:
        """These answers, with positions that a lagging slave does not move back.

        A slave that cannot name its log is left out: its log may differ from its master's.
        """
        nameless = {
            broker
            for broker in self.at_slaves
            if broker not in self.stores and broker in start.stores
            if start.stores[broker].store_id
        }
        ends = {
            queue: max(end, start.queues.get(queue, 0))
            if queue.broker_name in self.at_slaves
            else end
            for queue, end in self.ends.items()
            if queue.broker_name not in nameless
        }
        return self._replace(ends=ends)

    def is_same(self, broker: str, before: StoreIdentity) -> bool:
        """Whether the log has everything that was read of it before."""
        store = self.stores[broker]
        if before.store_id != store.store_id:
            return False
        if before.run and before.run == store.run:
            return True
        # Position or broker of an older release: only the epoch is known.
        has_run = self.has_run.get(broker) if before.run else None
        return before.epoch == store.epoch if has_run is None else has_run

    def named_since(self, start: StreamOffset) -> dict[str, StoreIdentity]:
        """Log identities for the next position; a run is never replaced by a shorter one."""
        return {
            broker: start.stores[broker].farther(store)
            if broker in start.stores and self.is_same(broker, start.stores[broker])
            else store
            for broker, store in self.stores.items()
        }


class StreamSession:
    """One run of one query."""

    def __init__(self, client: ClientInstance, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._discovery = TopicDiscovery(client, options)
        self._lookup = OffsetLookup(client, options)
        self._filter = FilterCheck(client, options)
        self._dead_letters = DeadLetterCheck(client, options)
        self._watch = ArrivalWatch(client, options.reader_group)
        self._initial: StreamOffset | None = None
        self._has_target = False
        self._target: Seen | None = None
        self._seen = Seen({}, {})
        self._position: StreamOffset | None = None
        self._row_sizes: dict[str, tuple[int, float]] = {}
        self._committed: Mapping[MessageQueue, int] = {}
        self._last_batch_at: float | None = None
        self._reported: set[object] = set()
        self._repeated: set[str] = set()

    # What Spark asks

    async def initial(self) -> StreamOffset:
        """Start of a new query; the same every time."""
        if self._initial is None:
            assert self._options.starting is not None
            queues = await self._discovery.first_queues()
            await self._dead_letters.check()
            begins = await self._lookup.resolve(self._options.starting, queues)
            # Asked after the offsets, so that everything before them is durable.
            stores = (await self._lookup.look(queues)).stores
            unnamed = {queue.broker_name for queue in queues} - stores.keys()
            stores |= await self._lookup.stores(unnamed)
            self._initial = StreamOffset(begins, stores=stores, is_initial=True)
        return self._initial

    def fix_target(self) -> None:
        """AvailableNow: read everything up to the next look, and nothing that comes later."""
        self._has_target = True

    async def latest(self, start: StreamOffset, limits: Limits, *, may_wait: bool) -> StreamOffset:
        """The end of the next batch; `start` itself when there is nothing to read."""
        if not self._seen.ends:
            # After a restart: remember queues that were read, even if their broker is away.
            self._discovery.remember(start.queues)
        await self._commit(start)
        end = await self._settled(start, limits)
        if end is start and may_wait and not self._has_target:
            seconds = self._options.latest_offset_wait_ms / 1000
            if seconds and await self._watch.wait(self._seen.ends, seconds):
                end = await self._settled(start, limits)
        if end is not start:
            await self._dead_letters.check()
            self._last_batch_at = self._client.clock.monotonic()
        self._position = end
        return end

    def note_repeated(self, brokers: Iterable[str]) -> None:
        """These brokers have queues of a batch that was repeated before the first look.

        If the log of one was cut before, the batch has read what came instead.
        """
        self._repeated.update(brokers)

    def note_position(self, end: StreamOffset) -> None:
        """The batch ends here; used by `backlog`."""
        self._position = end

    async def commit(self, end: StreamOffset) -> None:
        """A batch is done."""
        await self._commit(end)

    async def close(self) -> None:
        """Cancel pending requests."""
        await self._watch.close()

    def backlog(self) -> dict[str, Any]:
        """Lag as of the last look, for Spark's progress reports."""
        position = self._position.queues if self._position is not None else {}
        ends = self._seen.ends
        lags = {q: max(0, ends[q] - position[q]) for q in sorted(ends) if q in position}
        found = StreamOffset(ends, row_sizes={}).to_json()
        found["lag"] = StreamOffset(lags).to_json()["queues"]
        found["totalLag"] = sum(lags.values())
        return found

    # Looking

    async def _look(self, start: StreamOffset) -> Seen:
        queues = await self._discovery.queues()
        found = await self._lookup.look(queues, start.stores)
        seen = Seen(
            found.ends, found.stores, found.at_slaves, found.silent, found.has_run, found.same
        )
        self._check_topics()
        seen = await self._with_remains(start, seen.since(start))
        self._note_silence(seen.silent)
        return seen

    async def _with_remains(self, start: StreamOffset, seen: Seen) -> Seen:
        """The same, with answers about queues of `start` that the look has not found.

        Reports loss for queues that are gone and were not read to their end.
        """
        absent = {
            queue
            for queue in start.queues.keys() - seen.ends.keys()
            if queue.broker_name not in seen.silent and ("gone", queue) not in self._reported
        }
        if not absent:
            return seen
        # Offsets of a replaced store are meaningless; the replaced store is reported instead.
        replaced = self._replaced(start, seen)
        remains = await ask_remains(
            self._client,
            sorted(queue for queue in absent if queue.broker_name not in replaced),
            self._discovery.missing_since,
            self._options.reader_group,
        )
        unread = unread_of(remains.gone, start.queues)
        if unread:
            self._reported.update(("gone", queue) for queue in unread)
            report_loss(
                describe_unread(unread, start.queues), fails=self._options.fails_on_data_loss
            )
        return seen._replace(
            ends={**seen.ends, **remains.offered}, silent={**remains.silent, **seen.silent}
        )

    async def _look_for_target(self, start: StreamOffset) -> Seen:
        """The target of AvailableNow; waits for brokers that are not reachable."""
        now = self._client.clock.monotonic
        began = now()
        until = began + self._options.poll_timeout_ms / 1000
        while (seen := await self._look(start)).silent and now() < until:
            await pause(_LOOK_AGAIN_S)
        if seen.silent:
            self._go_on_without(seen, seen.silent, now() - began)
        return seen

    async def _settled(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        """The end of the next batch; `start` only if every broker says that it has no more.

        Spark interprets `start` as "everything was read" (`processAllAvailable`). So this waits for
        brokers that do not answer while there is nothing else to read.
        """
        now = self._client.clock.monotonic
        began = now()
        end = await self._next(start, limits)
        while end is start and not self._has_target:
            silent = {
                broker: error
                for broker, error in self._seen.silent.items()
                if ("left out", broker) not in self._reported
            }
            if not silent:
                break
            waited_s = now() - began
            if waited_s * 1000 >= self._options.poll_timeout_ms:
                self._go_on_without(self._seen, silent, waited_s)
                break
            await pause(_LOOK_AGAIN_S)
            end = await self._next(start, limits)
        return end

    def _go_on_without(
        self, seen: Seen, silent: Mapping[str, errors.RmqError], waited_s: float
    ) -> None:
        """Raise, or warn and skip these brokers until they answer again."""
        reasons = "; ".join(f"{broker}: {error}" for broker, error in sorted(silent.items()))
        text = (
            f"broker {', '.join(sorted(silent))} did not answer within {waited_s:.1f} s"
            f" (rmqConsumer.pollTimeoutMs={self._options.poll_timeout_ms}): whether it has"
            " messages that were not read is not known"
        )
        if self._options.fails_on_data_loss or not seen.ends:
            raise errors.ServiceNotAvailable(
                errors.ServiceNotAvailable.response_code,
                f"{text}. Start the broker, raise rmqConsumer.pollTimeoutMs to wait longer, or set"
                " failOnDataLoss=false to read the other brokers without it. The reason:"
                f" {reasons}",
            )
        self._reported.update(("left out", broker) for broker in silent)
        _log.warning("%s; going on without it, because failOnDataLoss is off (%s)", text, reasons)

    def _note_silence(self, silent: Mapping[str, errors.RmqError]) -> None:
        """Warn once of each broker that does not answer, and once when it answers again."""
        for broker, error in silent.items():
            self._say_once(("silent", broker), f"broker {broker} does not answer: {error}")
        over = {
            key
            for key in self._reported
            if isinstance(key, tuple) and key[0] in ("silent", "left out") and key[1] not in silent
        }
        self._reported -= over
        for broker in sorted({str(key[1]) for key in over}):
            _log.warning("broker %s answers again", broker)

    def _check_topics(self) -> None:
        now = self._client.clock.monotonic()
        for topic, since in self._discovery.missing_since.items():
            if now - since >= TOPIC_GRACE_S and ("gone", topic) not in self._reported:
                self._reported.add(("gone", topic))
                report_loss(
                    f"topic {topic} was read and no name server knows it any more",
                    fails=self._options.fails_on_data_loss,
                )

    def _say_once(self, key: object, text: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            _log.warning("%s", text)

    # Deciding

    async def _next(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        if self._has_target and self._target is None:
            self._target = await self._look_for_target(start)
        self._seen = seen = self._target or await self._look(start)
        seen = seen.since(start)
        await self._filter.check(seen.ends)
        differs = self._differs(start, seen)
        odd = self._odd(start, seen)
        # Later batches of this run are planned by its own looks.
        self._repeated -= seen.stores.keys()
        cut = {queue: seen.ends[queue] for queue in odd if self._was_cut(queue, start, seen)}
        cut.update(differs)
        odd.update(differs)
        begins = await self._begins({queue: seen.ends[queue] for queue in odd if queue not in cut})
        begins.update(cut)
        backlog = [
            QueueRange(*queue, begins[queue] if queue in odd else start.queues[queue], end)
            for queue, end in sorted(seen.ends.items())
            # Skip queues whose broker became unreachable after the look.
            if queue in begins or queue not in odd
        ]
        backlog = [part for part in backlog if part.rows > 0]
        # A slave that answers stands in for a master that cannot be asked.
        known = [p for p in backlog if p.queue not in odd and p.broker_name not in seen.at_slaves]
        deleted = await self._deleted(known, limits)
        if deleted:
            report_loss(describe_deleted(deleted, start.queues), fails=False)
            begins.update(deleted)
            backlog = [part._replace(start=begins.get(part.queue, part.start)) for part in backlog]
            backlog = [part for part in backlog if part.rows > 0]
        rows = sum(part.rows for part in backlog)
        moved = {
            # Reset offsets of a replaced or cut log, also where nothing is read.
            **{queue: 0 for queue in self._without_past(start, seen) if queue not in begins},
            **{queue: begins[queue] for queue in begins if queue in start.queues},
        }
        # A position above the end of its queue is corrected at once, by an empty batch if
        # necessary: otherwise new messages would count as already read.
        is_moved = any(start.queues[queue] != offset for queue, offset in moved.items())
        if not is_moved and (not rows or self._should_wait(rows, limits)):
            return start
        row_sizes = await self._sizes(backlog)
        parts = limited(backlog, min(rows, _rows_max(limits, row_sizes, backlog)))
        read = {part.queue: part for part in parts}
        if start.is_initial:
            # Spark does not store where a query began, so the first batch does.
            begins = {**start.queues, **begins}
        queues = {
            **start.queues,
            **moved,
            **{queue: part.until for queue, part in read.items()},
        }
        return StreamOffset(
            queues,
            {
                queue: offset
                for queue, offset in begins.items()
                # What was deleted is not read, also where this batch has no rows.
                if queue in read or queue in deleted or (start.is_initial and queue in start.queues)
            },
            {**start.stores, **seen.named_since(start)},
            {**start.row_sizes, **row_sizes},
        )

    async def _deleted(self, backlog: list[QueueRange], limits: Limits) -> dict[MessageQueue, int]:
        """Queues whose next messages were deleted -> their first offset, at most the end.

        Only with failOnDataLoss=false; otherwise the task that reads them fails. Asked when limits
        would spread the missing messages over many batches, and for the first batch of a run. Else
        the task reports what it finds.
        """
        is_first = self._last_batch_at is None
        if self._options.fails_on_data_loss or not (is_first or limits.rows or limits.size):
            return {}
        ends = {part.queue: part.until for part in backlog}
        # Brokers that do not answer now are left to the tasks.
        told, _ = await self._lookup.begins(ends)
        gaps = {
            part.queue: min(told[part.queue], part.until)
            for part in backlog
            if told.get(part.queue, 0) > part.start
        }
        return {
            queue: begin
            for queue, begin in gaps.items()
            if not await says_compacted(self._client, queue)
        }

    def _odd(self, start: StreamOffset, seen: Seen) -> set[MessageQueue]:
        """Queues that do not continue at their position: new, or of a replaced or cut log."""
        replaced = self._replaced(start, seen)
        odd = {
            queue
            for queue, end in seen.ends.items()
            if queue not in start.queues
            or queue.broker_name in replaced
            or end < start.queues[queue]
        }
        for queue in sorted(odd):
            if (
                queue in start.queues
                and queue.broker_name not in replaced
                and not self._lacks(queue.broker_name, start, seen)
            ):
                end, position = seen.ends[queue], start.queues[queue]
                then = (
                    f"{position - end} messages at the end of the log were cut off; reading goes on"
                    f" at {end}"
                    if self._was_cut(queue, start, seen)
                    else "the topic was deleted and made again, or the log was cut; its broker does"
                    " not name its log, so the queue is read again from its first offset"
                )
                self._report_once(
                    ("cut", queue, end),
                    f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} ends at"
                    f" {end}, and was read up to {position} before: {then}",
                )
        return odd

    def _lacks(self, broker: str, start: StreamOffset, seen: Seen) -> bool:
        """Whether the log lacks some of what was read, and says up to where it is the same."""
        before = start.stores.get(broker, NAMELESS)
        return (
            bool(before.store_id)
            and broker in seen.stores
            and not seen.is_same(broker, before)
            and any(queue.broker_name == broker for queue in seen.same)
        )

    def _differs(self, start: StreamOffset, seen: Seen) -> dict[MessageQueue, int]:
        """Queues whose end was read and is no longer in the log -> where they begin to differ.

        Other messages have those offsets now, or none. They are read from there.
        """
        return {
            queue: start.queues[queue] if queue.broker_name in self._repeated else same
            for queue, same in seen.same.items()
            if same < start.queues.get(queue, 0) and self._lacks(queue.broker_name, start, seen)
        }

    def _was_cut(self, queue: MessageQueue, start: StreamOffset, seen: Seen) -> bool:
        """Whether a queue that ends before its position belongs to the log that was read.

        Brokers of this project identify their store; Apache brokers do not.
        """
        position = start.queues.get(queue)
        if position is None or seen.ends[queue] >= position:
            return False
        before = start.stores.get(queue.broker_name, NAMELESS)
        store = seen.stores.get(queue.broker_name, before)
        return bool(store.store_id) and before.store_id in ("", store.store_id)

    async def _begins(self, ends: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """First offsets of these queues, without those of brokers that no longer answer."""
        # Empty queues need no request.
        found = {queue: 0 for queue, end in ends.items() if end == 0}
        now = self._client.clock.monotonic
        until = now() + self._options.poll_timeout_ms / 1000
        while missing := sorted(ends.keys() - found.keys()):
            told, failed = await self._lookup.begins(missing)
            found.update(told)
            for queue, error in failed.items():
                # AvailableNow must not leave out messages.
                if not is_passing(error) or (self._has_target and now() >= until):
                    raise error
                self._say_once(
                    ("silent", queue.broker_name),
                    f"broker {queue.broker_name} does not answer any more: {error}",
                )
            if not failed or not self._has_target:
                break
            await pause(_LOOK_AGAIN_S)
        return found

    def _without_past(self, start: StreamOffset, seen: Seen) -> list[MessageQueue]:
        """Queues that were read before their broker's log was replaced."""
        replaced = {
            broker
            for broker, store in seen.stores.items()
            if broker in start.stores and start.stores[broker].store_id not in ("", store.store_id)
        }
        return [queue for queue in start.queues if queue.broker_name in replaced]

    def _replaced(self, start: StreamOffset, seen: Seen) -> set[str]:
        """Brokers whose log is not the one of `start`."""
        replaced = set()
        for broker, store in seen.stores.items():
            before = start.stores.get(broker)
            if before is None or not before.store_id or seen.is_same(broker, before):
                continue
            if before.store_id != store.store_id:
                replaced.add(broker)
                text = (
                    f"the checkpoint belongs to another store of broker {broker}: that was"
                    f" {before.store_id}, this is {store.store_id}, a new one or another cluster's"
                )
            elif broker in seen.has_run and before.run:
                text = (
                    f"broker {broker} has another log since position {before.log_position} at the"
                    " latest, where messages were read: a backup was restored, a slave that was"
                    " behind was promoted, or a crash has cut the log. "
                    + self._lost(broker, start, seen)
                )
            else:
                text = (
                    f"broker {broker} came back after a crash in which messages that were read may"
                    f" have been cut off (epoch {store.epoch}, not {before.epoch})"
                )
            self._report_once(
                ("store", broker, store[:2], before.run),
                text,
                is_new_store=before.store_id != store.store_id,
            )
        return replaced

    def _lost(self, broker: str, start: StreamOffset, seen: Seen) -> str:
        if not self._lacks(broker, start, seen):
            return describe_unknown_loss(start.stores[broker].run)
        same = {queue: at for queue, at in seen.same.items() if queue.broker_name == broker}
        return describe_lost(same, start.queues, is_repeated=broker in self._repeated)

    def _report_once(self, key: object, text: str, *, is_new_store: bool = False) -> None:
        fails = self._options.fails_on_data_loss
        if fails or key not in self._reported:
            self._reported.add(key)
            if is_new_store:
                report_loss(
                    text, fails=fails, remedy=NEW_STORE_REMEDY, anchor="checkpoint-of-another-store"
                )
            else:
                report_loss(text, fails=fails)

    def _should_wait(self, rows: int, limits: Limits) -> bool:
        if limits.rows_min is None or rows >= limits.rows_min or self._has_target:
            return False
        now = self._client.clock.monotonic()
        if self._last_batch_at is None:
            self._last_batch_at = now
        return (now - self._last_batch_at) * 1000 < self._options.trigger_delay_max_ms

    async def _sizes(self, backlog: list[QueueRange]) -> dict[str, int]:
        """Approximate record size of each topic, sampled from time to time."""
        now = self._client.clock.monotonic()
        longest: dict[str, QueueRange] = {}
        for part in backlog:
            if part.topic not in longest or part.rows > longest[part.topic].rows:
                longest[part.topic] = part
        found = {}
        for topic, part in longest.items():
            known = self._row_sizes.get(topic)
            if known is None or now - known[1] >= _SAMPLE_INTERVAL_S:
                size = await self._lookup.row_size(part.queue, part.until)
                if size is not None:
                    known = self._row_sizes[topic] = (size, now)
            if known is not None:
                found[topic] = known[0]
        return found

    async def _commit(self, position: StreamOffset) -> None:
        """Commit the progress of the group; `position` is the end of a finished batch."""
        if not self._options.commits_offsets or position.is_initial:
            return
        changed = {
            queue: offset
            for queue, offset in position.queues.items()
            if self._committed.get(queue) != offset
        }
        if changed:
            self._committed = dict(position.queues)
            await self._lookup.commit(self._options.group, changed)


def _rows_max(limits: Limits, row_sizes: Mapping[str, int], backlog: list[QueueRange]) -> int:
    rows = sum(part.rows for part in backlog)
    most = rows if limits.rows is None else limits.rows
    if limits.size is not None:
        size = sum(part.rows * row_sizes.get(part.topic, ROW_SIZE_DEFAULT) for part in backlog)
        most = min(most, max(1, limits.size * rows // max(size, 1)))
    return max(1, most)
