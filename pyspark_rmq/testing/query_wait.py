"""`processed(query, until=…)`: waits for a condition of a query, never for a fixed time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core import SyncAdmin, Topic, errors
from pyspark_rmq.progress import total_of

_POLL_S: Final = 0.1
TIMEOUT_S: Final = 300.0

# Topic -> broker name -> queue id -> next offset
Ends = Mapping[str, Mapping[str, Mapping[str, int]]]


class NotProcessed(AssertionError):
    """The condition was not met in time, or the query ended before."""


def processed(
    query: Any,
    until: Callable[[], object] | Topic | int | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Wait until a streaming query has processed what a test has sent.

    `until` says what to wait for. A topic (from `broker.topic(name)`): everything that is in it now
    was read and written to the sink. A number: that many input rows since the query started. A
    function: it returns true. None: everything that is available, for a query whose input pauses.

    Raises the error of the query, and `NotProcessed` with the last report when the query ends
    before that or the wait takes too long.
    """
    # pytest then shows the line of the test, not this file.
    __tracebackhide__ = True
    if not hasattr(query, "recentProgress"):
        raise TypeError(
            f"processed takes a query, as start() of a stream returns it, not {query!r:.80}"
        )
    from pyspark.errors import PySparkException

    if until is None:
        _all_available(query, timeout_s)
        return
    deadline = time.monotonic() + timeout_s
    ends = _ends_of(query, until, deadline) if isinstance(until, Topic) else {}
    if isinstance(until, Topic) and not any(ends.values()) and query.lastProgress is None:
        # The query may not have chosen its start position: messages sent next must not be skipped.
        _all_available(query, timeout_s)
    is_there = _condition(query, until, ends)
    while not is_there():
        try:
            ended = query.awaitTermination(_POLL_S)
        except PySparkException as error:
            # The frames are those of Py4J; the text has the traceback of the worker.
            raise error.with_traceback(None) from None
        if ended and not is_there():
            raise NotProcessed(f"the query ended before {_named(until)}; {_state(query)}")
        if time.monotonic() > deadline:
            unread = _unread(query.lastProgress, until)
            raise NotProcessed(
                f"not within {timeout_s:g} s: {_named(until)}{unread}; {_state(query)}"
            )


def _condition(
    query: Any, until: Callable[[], object] | Topic | int, ends: Ends
) -> Callable[[], bool]:
    __tracebackhide__ = True
    if isinstance(until, Topic):
        return lambda: _has_reached(query.lastProgress, ends)
    if isinstance(until, int) and not isinstance(until, bool):
        rows: dict[tuple[int, str], float] = {}

        def has_rows() -> bool:
            # Spark keeps the last reports only.
            for report in query.recentProgress:
                rows[report["batchId"], report["timestamp"]] = total_of(report, "numInputRows")
            return sum(rows.values()) >= until

        return has_rows
    if callable(until):
        return lambda: bool(until())
    raise TypeError(
        f"until={until!r:.80}: give a topic (broker.topic(name)), a number of rows or a function"
    )


def _ends_of(query: Any, topic: Topic, deadline: float) -> dict[str, dict[str, dict[str, int]]]:
    """Ends of the queues that have messages, in the form of the source's offsets.

    Asked again after an error that a retry may cure, such as those of a fault, until the deadline
    or the end of the query.
    """
    __tracebackhide__ = True
    while True:
        ends: dict[str, dict[str, int]] = {}
        try:
            with SyncAdmin(topic.client_config) as admin:
                found = admin.topic_offsets(topic.name)
        except errors.NameServersSilent:
            # The broker does not run.
            raise
        except errors.RmqError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise
            if query.awaitTermination(_POLL_S):
                raise
            continue
        for queue, (_, end) in found.items():
            if end:
                ends.setdefault(queue.broker_name, {})[str(queue.queue_id)] = end
        return {topic.name: ends}


def _has_reached(report: Any, ends: Ends) -> bool:
    """Whether a source of the query has read every queue up to its end."""
    if not isinstance(report, Mapping):
        return not any(ends.values())
    return any(_covers(source.get("endOffset"), ends) for source in report.get("sources") or ())


def _covers(offset: Any, ends: Ends) -> bool:
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
        queues = found["queues"]
        return all(
            queues.get(topic, {}).get(broker, {}).get(queue_id, -1) >= end
            for topic, brokers in ends.items()
            for broker, of_broker in brokers.items()
            for queue_id, end in of_broker.items()
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        # A source of another kind, or its first report.
        return False


def _unread(report: Any, until: object) -> str:
    """A text for the error if no source of the query reads the topic that is waited for."""
    if not isinstance(until, Topic) or not isinstance(report, Mapping):
        return ""
    found: set[str] = set()
    for source in report.get("sources") or ():
        offset = source.get("endOffset")
        offset = json.loads(offset) if isinstance(offset, str) else offset
        found.update(offset.get("queues") or () if isinstance(offset, Mapping) else ())
    if until.name in found:
        return ""
    return f", which the query does not read (it reads {', '.join(sorted(found)) or 'no topic'})"


def _all_available(query: Any, timeout_s: float) -> None:
    __tracebackhide__ = True
    from pyspark.errors import PySparkException

    failures: list[PySparkException] = []

    def wait() -> None:
        try:
            query.processAllAvailable()
        except PySparkException as error:
            failures.append(error)

    # `processAllAvailable` knows no limit of time.
    thread = threading.Thread(target=wait, name="rmq-processed", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failures:
        raise failures[0].with_traceback(None) from None
    if thread.is_alive():
        raise NotProcessed(f"not within {timeout_s:g} s: all that is available; {_state(query)}")


def _named(until: object) -> str:
    if isinstance(until, Topic):
        return f"everything in topic {until.name}"
    if isinstance(until, int):
        return f"{until} rows"
    return getattr(until, "__name__", repr(until))


def _state(query: Any) -> str:
    from pyspark_rmq.notebook.query_view import QueryView

    view = QueryView(str(query.name or query.id)).with_report(query.lastProgress)
    return f"last report: {view.line()}"
