"""A position in the stream as Spark keeps it in the checkpoint: JSON of a fixed shape and order.

    {"version": 1,
     "queues":  {topic: {broker: {queue: next offset}}},
     "begins":  the same shape: queues whose part of this batch does not begin where the last ended
     "stores":  {broker: {"id": …, "epoch": …, "run": …, "runs": …}}   the log of the offsets
     "rowBytes": {topic: …},  about how large a record is, for planning
     "repeats": {topic: {broker: {queue: [from, until, …]}}}   offsets of this batch to leave out
     "rows":    named rows that were read (`seen_rows.py`); both only with deduplicate
     "initial": true}         only in the first position of a query

Spark compares positions as texts, so equal positions must have the same text: keys are sorted,
empty entries left out. A batch is planned from two positions alone, so they contain all that
planning needs. `begins` also names every queue of the first batch, because Spark does not store
where that began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker_core import MessageQueue, errors

VERSION: Final = 1
_I64_MAX: Final = (1 << 63) - 1
_REMEDY: Final = (
    "the checkpoint was not written by this source, or by a newer version of it; use the checkpoint"
    " directory that belongs to the query, or a new one"
)


class StoreIdentity(NamedTuple):
    """Identity of a broker's log; empty for Apache brokers, which do not tell it."""

    store_id: str = ""
    epoch: str = ""
    run: str = ""
    """Which run of a broker wrote the last message that was read; empty in older positions."""
    runs: str = ""
    """The latest runs of that log; they show where a restored backup differs."""

    @property
    def log_position(self) -> int:
        """Log position up to which `run` is known; -1 if it is not."""
        text = self.run.partition(".")[0]
        return int(text) if text.isascii() and text.isdigit() else -1

    def farther(self, other: StoreIdentity) -> StoreIdentity:
        """Of two identities of one log, the one that is known further."""
        return self if self.log_position > other.log_position else other


Repeats = Mapping[MessageQueue, tuple[tuple[int, int], ...]]


class StreamOffset(NamedTuple):
    """The next offset of every queue, and the data needed to plan the batch that ends here."""

    queues: Mapping[MessageQueue, int]
    begins: Mapping[MessageQueue, int] = MappingProxyType({})
    stores: Mapping[str, StoreIdentity] = MappingProxyType({})
    row_sizes: Mapping[str, int] = MappingProxyType({})
    is_initial: bool = False
    repeats: Repeats = MappingProxyType({})
    seen_rows: Mapping[str, Any] = MappingProxyType({})
    """JSON of `SeenRows`; the order is significant."""

    def to_json(self) -> dict[str, Any]:
        """JSON for Spark."""
        found: dict[str, Any] = {"version": VERSION, "queues": _nested(self.queues)}
        if self.begins:
            found["begins"] = _nested(self.begins)
        stores = {
            broker: _store_json(store)
            for broker, store in sorted(self.stores.items())
            if store.store_id
        }
        if stores:
            found["stores"] = stores
        if self.row_sizes:
            found["rowBytes"] = dict(sorted(self.row_sizes.items()))
        if self.repeats:
            found["repeats"] = _nested(
                {
                    queue: [n for pair in pairs for n in pair]
                    for queue, pairs in self.repeats.items()
                }
            )
        if self.seen_rows:
            found["rows"] = self.seen_rows
        if self.is_initial:
            found["initial"] = True
        return found

    @staticmethod
    def from_json(found: object) -> StreamOffset:
        """Parse a position; raises `InvalidArgument`."""
        if not isinstance(found, Mapping) or found.get("version") != VERSION:
            raise errors.InvalidArgument(f"a position {found!r:.120} cannot be used: {_REMEDY}")
        try:
            return StreamOffset(
                _flat(found["queues"]),
                _flat(found.get("begins", {})),
                {
                    str(broker): StoreIdentity(
                        str(store["id"]),
                        str(store["epoch"]),
                        str(store.get("run", "")),
                        str(store.get("runs", "")),
                    )
                    for broker, store in found.get("stores", {}).items()
                },
                {str(topic): _whole(size) for topic, size in found.get("rowBytes", {}).items()},
                found.get("initial") is True,
                {queue: _pairs(flat) for queue, flat in _entries(found.get("repeats", {}))},
                _object(found.get("rows", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise errors.InvalidArgument(
                f"a position {found!r:.120} cannot be used ({error!r:.80}): {_REMEDY}"
            ) from None


def _store_json(store: StoreIdentity) -> dict[str, str]:
    found = {"id": store.store_id, "epoch": store.epoch, "run": store.run, "runs": store.runs}
    return {name: text for name, text in found.items() if text or name in ("id", "epoch")}


def _nested(queues: Mapping[MessageQueue, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    nested: dict[str, dict[str, dict[str, Any]]] = {}
    for queue in sorted(queues):
        of_broker = nested.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        of_broker[str(queue.queue_id)] = queues[queue]
    return nested


def _flat(nested: Mapping[str, Any]) -> dict[MessageQueue, int]:
    return {queue: _whole(offset) for queue, offset in sorted(_entries(nested))}


def _entries(nested: Mapping[str, Any]) -> Iterable[tuple[MessageQueue, Any]]:
    for topic, of_topic in nested.items():
        for broker, of_broker in of_topic.items():
            for queue_id, value in of_broker.items():
                yield MessageQueue(topic, broker, int(queue_id)), value


def _pairs(flat: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(flat, list) or len(flat) % 2:
        raise ValueError(f"{flat!r:.40} is not a list of ranges")
    numbers = [_whole(number) for number in flat]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _object(found: object) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise TypeError(f"{found!r:.40} is not an object")
    return found


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _I64_MAX:
        raise ValueError(f"{value!r:.40} is not an offset")
    return value
