"""Property texts of messages as one Arrow map column, without a Python object per message.

A text is `name 0x01 value 0x02 …`. Pairs without a name or a value are dropped.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rmq.number_arrays import number_array

MAP_TYPE: Final = pa.map_(pa.string(), pa.string())
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_ZERO: Final = np.zeros(1, np.int32)
HEADERS_TYPE: Final = pa.list_(pa.field("element", _HEADER))

# Used internally by clients and brokers; tags and keys have their own columns.
SYSTEM_PROPERTIES: Final = (
    "1ST_POP_TIME",
    "ARRIVE_TIME",
    "BORN_TIMESTAMP",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "CLUSTER",
    "CONSUME_START_TIME",
    "CORRECTION_FLAG",
    "CORRELATION_ID",
    "DELAY",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "DUP_INFO",
    "EXTEND_UNIQ_INFO",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "INSTANCE_ID",
    "KEYS",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "POP_CK",
    "POP_CK_OFFSET",
    "PROPERTY_FORWARD_QUEUE_ID",
    "PUSH_REPLY_TIME",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REDIRECT",
    "REPLY_TO_CLIENT",
    "RETRY_TOPIC",
    "TAGS",
    "TIMER_DELAY_LEVEL",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES",
    "TRACE_ON",
    "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG",
    "TRAN_MSG",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "TTL",
    "UNIQ_KEY",
    "WAIT",
    "__BORNHOST",
    "__CRC32#",
    "__SHARDINGKEY",
    "__transactionId__",
)


@cache
def system_properties() -> Any:
    """`SYSTEM_PROPERTIES` as an Arrow array.

    Not a constant of the module: the first conversion of Python values makes Arrow import pandas,
    which costs every new Python worker 0.4 s.
    """
    return pa.array(SYSTEM_PROPERTIES)


def property_maps(texts: Any, include_system: bool = False) -> Any:
    """`texts` is a binary array, null for messages without properties; the result has no nulls."""
    filled = pc.fill_null(texts, b"")
    pairs = pc.split_pattern(filled, pattern=b"\x02")
    pair_texts = pairs.flatten()
    rows = pc.list_parent_indices(pairs)
    halves = pc.split_pattern(pair_texts, pattern=b"\x01", max_splits=1)
    is_pair = pc.equal(pc.list_value_length(halves), 2)
    halves, rows = halves.filter(is_pair), rows.filter(is_pair)
    names = _text(pc.list_element(halves, 0))
    values = _text(pc.list_element(halves, 1))
    wanted = pc.and_(
        pc.greater(pc.binary_length(names), 0), pc.greater(pc.binary_length(values), 0)
    )
    if not include_system:
        wanted = pc.and_(wanted, pc.invert(pc.is_in(names, value_set=system_properties())))
    names, values = names.filter(wanted), values.filter(wanted)
    counts = np.bincount(rows.filter(wanted).to_numpy(), minlength=len(texts))
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.MapArray.from_arrays(number_array(offsets.astype(np.int32)), names, values)


def headers_of(maps: Any) -> Any:
    """Maps of properties as Kafka's headers; null instead of an empty list."""
    pairs = pa.StructArray.from_arrays(
        [maps.keys, maps.items.cast(pa.binary())], fields=list(_HEADER)
    )
    is_empty = pc.equal(pc.subtract(maps.offsets[1:], maps.offsets[:-1]), number_array(_ZERO)[0])
    return pa.ListArray.from_arrays(maps.offsets, pairs, type=HEADERS_TYPE, mask=is_empty)


def _text(raw: Any) -> Any:
    """As UTF-8; invalid bytes are replaced, as in the other text columns."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([bytes(value).decode("utf-8", "replace") for value in raw.to_pylist()])
