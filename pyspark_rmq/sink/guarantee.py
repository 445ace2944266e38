"""The delivery guarantee of a query: decided once, on the driver, and logged."""

from __future__ import annotations

import logging
import os

from broker_core import ClientInstance, SinkClient, errors
from pyspark_rmq.connections import connect
from pyspark_rmq.options import ConnectionOptions
from pyspark_rmq.sink.known_brokers import is_known_topic, known_masters
from pyspark_rmq.sink.query_state import QueryState
from pyspark_rmq.sink.sink_options import AT_LEAST_ONCE, AUTO, EXACTLY_ONCE, SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity
from pyspark_rmq.sink.task.sink_columns import SinkColumns, allowed_guarantee

_log = logging.getLogger(__name__)

# Decisions of this process; replacing brokers by another kind counts as another cluster.
_decided: dict[tuple[int, ConnectionOptions, str, str, bool], str] = {}
# Runs of sinks that were not exactly-once before.
_sent_before: set[tuple[int, ConnectionOptions, str, str]] = set()
# Guarantees of sinks that are stored on the driver.
_kept: dict[tuple[int, ConnectionOptions, str], str] = {}


def decide_guarantee(options: SinkOptions, columns: SinkColumns) -> str:
    """exactly_once or at_least_once. Raises `RequestNotSupported` if brokers do not support it.

    What `auto` means is stored in the checkpoint, if that is a local directory: a batch and its
    replay must be written in the same way. Raises `InvalidArgument` if it changes.
    """
    decided = _possible_guarantee(options, columns)
    if decided == AT_LEAST_ONCE and options.short_circuit == "on":
        raise errors.InvalidArgument(
            "option shortCircuit=on needs deliveryGuarantee=exactly_once: at least once, all rows"
            " are sent over the network. Use shortCircuit=auto"
        )
    state = QueryState(options.checkpoint, options.sink_id)
    before = state.read().guarantee
    if before and before != decided and options.guarantee == AUTO:
        raise _changed(
            f"the query in {options.checkpoint}", before, decided, options.topic or "by column"
        )
    if before != decided:
        state.write(guarantee=decided)
    return decided


def refuse_weaker_guarantee(options: SinkOptions, identity: TaskIdentity) -> None:
    """Raises `InvalidArgument` if a task is about to send and its sink was exactly-once before.

    Brokers remember their sinks, so this works without a local checkpoint, too.
    """
    key = (os.getpid(), options.connection, identity.sink, identity.run)
    if options.guarantee != AUTO or identity.once or key in _sent_before:
        return
    connected = connect(options.connection)
    if connected.call(_is_exactly_once(connected.client, options, identity.sink)):
        raise _changed(
            f"sink {identity.sink}", EXACTLY_ONCE, AT_LEAST_ONCE, options.topic or "by column"
        )
    _sent_before.add(key)


def keep_guarantee(state: QueryState, options: SinkOptions, sink: str, guarantee: str) -> None:
    """Store, at a commit, the guarantee of a query whose checkpoint is not a local directory.

    Raises `InvalidArgument` if `auto` meant something else before. In a local checkpoint
    `decide_guarantee` does that before any row is written; only tasks and commits know the query.
    """
    key = (os.getpid(), options.connection, sink)
    if not state.is_on_driver or _kept.get(key) == guarantee:
        return
    before = state.read().guarantee
    if before not in ("", guarantee) and options.guarantee == AUTO:
        raise _changed(f"sink {sink}", before, guarantee, options.topic or "by column")
    if before != guarantee:
        state.write(guarantee=guarantee)
    _kept[key] = guarantee


async def _is_exactly_once(client: ClientInstance, options: SinkOptions, sink_id: str) -> bool:
    sink = SinkClient(client, retry_for_ms=options.retry_for_ms)
    return await sink.is_known(sink_id, await sink.masters())


def _changed(who: str, before: str, now: str, topic: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(
        f"deliveryGuarantee=auto meant {before} when {who} wrote first, and means {now} now: the"
        f" brokers of topic {topic}, or the columns, are others than before. A batch that is run"
        f" again would be written in another way than the first time. Give deliveryGuarantee={now}"
        f" if that is what you want, or make sure that all brokers of the topic support {before}"
    )


def _possible_guarantee(options: SinkOptions, columns: SinkColumns) -> str:
    asked = allowed_guarantee(columns, options.guarantee)
    if asked == AT_LEAST_ONCE:
        if options.guarantee != AT_LEAST_ONCE:
            _log.warning("rows with a column delayLevel or deliverAt are written at least once")
        if columns.deliver_at is not None:
            connected = connect(options.connection)
            connected.call(_require_timers(connected.client, options))
        return AT_LEAST_ONCE
    names_brokers = columns.broker is not None
    key = (os.getpid(), options.connection, options.topic, asked, names_brokers)
    known = _decided.get(key)
    if known is None:
        connected = connect(options.connection)
        deciding = _decide(connected.client, options, asked, names_brokers)
        known = _decided[key] = connected.call(deciding)
        _log.info("topic %s: deliveryGuarantee is %s", options.topic or "by column", known)
    return known


async def _decide(
    client: ClientInstance, options: SinkOptions, asked: str, names_brokers: bool
) -> str:
    sink = SinkClient(client, retry_for_ms=options.retry_for_ms)
    names, are_of_topic = await _brokers(client, options)
    # Does not wait for brokers that may never get a row, but needs one answer.
    get_rows = are_of_topic and not names_brokers
    found = {} if get_rows else await sink.supported_now(names)
    if not found:
        found = {name: await sink.is_supported(name) for name in names}
    unable = [name for name, is_able in found.items() if not is_able]
    if not unable:
        return EXACTLY_ONCE
    if asked == EXACTLY_ONCE:
        raise errors.RequestNotSupported(
            3,
            f"deliveryGuarantee=exactly_once: broker {', '.join(unable)} does not support it."
            " Give deliveryGuarantee=at_least_once for Apache RocketMQ",
        )
    return AT_LEAST_ONCE


async def _require_timers(client: ClientInstance, options: SinkOptions) -> None:
    sink = SinkClient(client, retry_for_ms=options.retry_for_ms)
    names, _ = await _brokers(client, options)
    unable = [name for name in names if not await sink.has_timers(name)]
    if unable:
        raise errors.RequestNotSupported(
            3,
            f"column deliverAt: broker {', '.join(unable)} cannot deliver a message at a time,"
            " RocketMQ 5 and brokers of this project can. Use the column delayLevel",
        )


async def _brokers(client: ClientInstance, options: SinkOptions) -> tuple[list[str], bool]:
    """Brokers of the topic and True; all brokers and False if it is missing or rows name it.

    At least one broker: raises `ConnectionLost` while none is known.
    """
    topic = options.topic
    if topic and await is_known_topic(client, topic, options.retry_for_ms):
        queues = await client.routes.publish_queues(topic)
        return sorted({queue.broker_name for queue in queues}), True
    return list(await known_masters(client, options.retry_for_ms)), False
