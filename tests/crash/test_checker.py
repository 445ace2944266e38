"""The checker itself: a good dump passes, and each way of being wrong gets its verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.checker import check
from tests.crash.history import Frozen, Sent
from tests.crash.store_dump import TABLE_PATHS, Dump, LogRecord, dump_store
from tests.crash.store_run import StoreRun
from tests.crash.workloads import start_run

Change = Callable[[Dump, Frozen], tuple[Dump, Frozen]]
_MADE: list[tuple[Dump, Frozen]] = []


def _good() -> tuple[Dump, Frozen]:
    """A store with messages of every kind, and what its client knows."""
    if not _MADE:
        run = start_run("puts", "sync", 3)
        steps = (StoreRun.open, *[StoreRun.put] * 9, StoreRun.put_group, StoreRun.put)
        for step in (*steps, StoreRun.save_table, StoreRun.read):
            step(run)
        assert run.store is not None
        _MADE.append((dump_store(run.store, run.disk), run.freeze()))
        run.close_loop()
    return _MADE[0]


def _with_record(dump: Dump, index: int, **fields: Any) -> Dump:
    records = list(dump.records)
    records[index] = records[index]._replace(**fields)
    return dump._replace(records=tuple(records))


def _shorter(dump: Dump, end: int) -> Dump:
    """The same store with everything from `end` on gone, consistently."""
    records = tuple(record for record in dump.records if record.position < end)
    queues = {}
    for key, queue in dump.queues.items():
        kept = sum(1 for record in records if record.sent.key == key)
        queues[key] = queue._replace(
            max_offset=queue.min_offset + kept, units=queue.units[:kept], served=queue.served[:kept]
        )
    index = tuple(entry for entry in dump.index if entry[1] < end)
    return dump._replace(records=records, log_end=end, queues=queues, index=index)


def _with_queue(dump: Dump, **fields: Any) -> Dump:
    key, queue = next((k, q) for k, q in sorted(dump.queues.items()) if len(q.units) > 1)
    return dump._replace(queues={**dump.queues, key: queue._replace(**fields)})


def _queue(dump: Dump) -> Any:
    return next(q for _, q in sorted(dump.queues.items()) if len(q.units) > 1)


def _other(record: LogRecord) -> Sent:
    return record.sent._replace(properties=frozenset({("TAGS", "blue")}))


CHANGES: dict[str, tuple[str, Change]] = {
    "acknowledged tail lost": ("I1", lambda d, h: (_shorter(d, d.records[-1].position), h)),
    "acknowledged start lost": ("I1", lambda d, h: (d._replace(log_start=2048), h)),
    "record missing": ("I2", lambda d, h: (d._replace(records=d.records[:2] + d.records[3:]), h)),
    "body changed": (
        "I3",
        lambda d, h: (_with_record(d, 1, sent=d.records[1].sent._replace(body=b"other")), h),
    ),
    "property changed": ("I3", lambda d, h: (_with_record(d, 1, sent=_other(d.records[1])), h)),
    "record that was never sent": ("I3", lambda d, h: (_with_record(d, 1, position=3), h)),
    "offset moved": ("I4", lambda d, h: (_with_record(d, 1, offset=77), h)),
    "numbering went back": (
        "I4 numbering",
        lambda d, h: (d, dataclasses.replace(h, next_offsets={("t0", 0): 99})),
    ),
    "queue entry missing": ("I5", lambda d, h: (_with_queue(d, units=_queue(d).units[:-1]), h)),
    "wrong tag code": (
        "I5",
        lambda d, h: (_with_queue(d, units=(*_queue(d).units[:-1], (0, 1, 2))), h),
    ),
    "message not served": ("I5", lambda d, h: (_with_queue(d, served=_queue(d).served[1:]), h)),
    "offsets out of step": ("I6", lambda d, h: (_with_queue(d, min_offset=7), h)),
    "index entry missing": ("I5 index", lambda d, h: (d._replace(index=d.index[1:]), h)),
    "index entry twice": ("I5 index", lambda d, h: (d._replace(index=(*d.index, d.index[-1])), h)),
    "queue files damaged": ("I5 order", lambda d, h: (d._replace(rebuilt=1), h)),
    "read and lost": (
        "I7",
        lambda d, h: (
            _shorter(d, d.records[-1].position),
            dataclasses.replace(h, safe_end=0, kept_end=0),
        ),
    ),
    "epoch went back": ("the epoch", lambda d, h: (d._replace(epoch=0), h)),
    "half a group": ("group", lambda d, h: (_shorter(d, h.groups[0][0] + 400), h)),
    "retention undone": ("retention", lambda d, h: (d, dataclasses.replace(h, start_min=2048))),
    "table lost": (
        "table",
        lambda d, h: (
            d._replace(tables=dict.fromkeys(TABLE_PATHS)),
            h,
        ),
    ),
}


def test_a_good_store_passes() -> None:
    dump, history = _good()
    assert len(dump.records) > 10
    assert dump.index
    assert check(dump, history) == []
    assert check(dump, history, killed=True) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_store_is_judged(name: str) -> None:
    verdict, change = CHANGES[name]
    found = check(*change(*_good()))
    assert any(line.startswith(verdict) for line in found), found


def test_a_lost_suffix_is_fine_when_nothing_was_promised() -> None:
    dump, history = _good()
    free = dataclasses.replace(history, safe_end=0, kept_end=0, visible={}, groups=())
    for record in dump.records:
        assert check(_shorter(dump, record.position), free) == []
