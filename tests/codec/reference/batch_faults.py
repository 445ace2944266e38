"""Column batches that no encoder accepts."""

from __future__ import annotations

import numpy as np

from broker_core.codec.records import record_reasons as reasons
from tests.codec.codec_backends import column

BIG_TEXT = b"a\x01" + b"b" * 32744 + b"\x02"


BATCH_FAULTS = [
    ({"count": -1}, -1, reasons.BAD_COUNT),
    ({"queues": ()}, -1, reasons.NO_QUEUES),
    ({"queues": ((b"", 0),)}, -1, reasons.BAD_TOPIC_LENGTH),
    ({"queues": ((b"t" * 256, 0),)}, -1, reasons.BAD_TOPIC_LENGTH),
    ({"queues": ((b"../x", 0),)}, -1, reasons.BAD_TOPIC_NAME),
    ({"queues": ((b"T", -1),)}, -1, reasons.BAD_QUEUE_ID),
    ({"queues": ((b"T", 1 << 31),)}, -1, reasons.BAD_QUEUE_ID),
    ({"born_host": b""}, -1, reasons.BAD_HOST),
    ({"store_host": b"123456789"}, -1, reasons.BAD_HOST),
    ({"flag": 1 << 31}, -1, reasons.BAD_NUMBER),
    ({"prepared_offset": 1 << 63}, -1, reasons.BAD_NUMBER),
    ({"body": (b"", bytes(12), 3)}, -1, reasons.BAD_WIDTH),
    ({"body": (b"", bytes(11), 4)}, -1, reasons.COLUMN_TOO_SHORT),
    ({"queue_index": bytes(7)}, -1, reasons.COLUMN_TOO_SHORT),
    ({"born_timestamp": bytes(15)}, -1, reasons.COLUMN_TOO_SHORT),
    ({"queue_index": np.array([0, 1], np.int32)}, 1, reasons.BAD_QUEUE_INDEX),
    ({"queue_index": np.array([-1, 0], np.int32)}, 0, reasons.BAD_QUEUE_INDEX),
    ({"body": (b"ab", np.array([0, 2, 1], np.int32), 4)}, 1, reasons.BAD_OFFSETS),
    ({"body": (b"ab", np.array([0, 1, 3], np.int32), 4)}, 1, reasons.BAD_OFFSETS),
    ({"body": (b"ab", np.array([-1, 1, 2], np.int64), 8)}, 0, reasons.BAD_OFFSETS),
    ({"tags": column(b"", b"a\x01")}, 1, reasons.TAGS_SEPARATOR),
    ({"keys": column(b"", b"a\x02")}, 1, reasons.KEYS_SEPARATOR),
    ({"properties": column(b"", BIG_TEXT + b"c")}, 1, reasons.PROPERTIES_TOO_LONG),
    ({"properties": column(b"", BIG_TEXT), "tags": column(b"t", b"t")}, 1,
     reasons.PROPERTIES_TOO_LONG),
    ({"properties": column(b"", b"__CRC32#\x010123456789"), "append_crc": False}, 1,
     reasons.PROPERTIES_UNSAFE),
]  # fmt: skip
