"""The batch codec in use: the native module when it is there, else its pure-Python twin.

`RMQ_CODEC=python` forces the twin, `RMQ_CODEC=native` makes a missing native module an ImportError.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

from broker_core.codec.column_names import (
    BORN_TIMESTAMP,
    FLAG,
    KEYS,
    MESSAGE_ID,
    MICROS,
    PHYSICAL_OFFSET,
    PROPERTIES,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TAGS,
    TOPIC,
    UNIQ_KEY,
    VALUE,
)

__all__ = [
    "BORN_TIMESTAMP",
    "FLAG",
    "KEYS",
    "MESSAGE_ID",
    "MICROS",
    "PHYSICAL_OFFSET",
    "PROPERTIES",
    "QUEUE_ID",
    "QUEUE_OFFSET",
    "RECONSUME_TIMES",
    "STORE_TIMESTAMP",
    "SYS_FLAG",
    "TAGS",
    "TOPIC",
    "UNIQ_KEY",
    "VALUE",
    "append_index_entries",
    "body_crc",
    "check_record",
    "choose_units",
    "codec_backend",
    "column_crcs",
    "cut_wire_runs",
    "decode_columns",
    "encode_batch",
    "encode_message",
    "encode_put",
    "find_unusual",
    "gather_records",
    "inspect_run",
    "java_hash",
    "join_client_batch",
    "join_sent_replies",
    "list_message_ids",
    "measure_batch",
    "read_plain_send",
    "read_sends",
    "relocate_run",
    "scan_records",
    "split_client_batch",
]

_NATIVE_NAME = "broker_core.codec._native"
# By name, because the twin needs numpy, which takes longer to import than a broker to start.
_TWIN_NAME = "broker_core.codec.record_loops"


def _choose_backend(choice: str) -> tuple[str, ModuleType]:
    if choice not in ("", "native", "python"):
        raise ImportError(f"RMQ_CODEC={choice!r} cannot be used: native, python or unset")
    if choice == "python":
        return "python", importlib.import_module(_TWIN_NAME)
    try:
        return "native", importlib.import_module(_NATIVE_NAME)
    except ImportError:
        if choice == "native":
            raise
        return "python", importlib.import_module(_TWIN_NAME)


_backend_name, _backend = _choose_backend(os.environ.get("RMQ_CODEC", ""))

# Both have the same signatures; the twin has the types.
if TYPE_CHECKING:
    from broker_core.codec.record_loops import (
        append_index_entries,
        body_crc,
        check_record,
        choose_units,
        column_crcs,
        cut_wire_runs,
        decode_columns,
        encode_batch,
        encode_message,
        encode_put,
        find_unusual,
        gather_records,
        inspect_run,
        java_hash,
        join_client_batch,
        join_sent_replies,
        list_message_ids,
        measure_batch,
        read_plain_send,
        read_sends,
        relocate_run,
        scan_records,
        split_client_batch,
    )
else:
    append_index_entries = _backend.append_index_entries
    body_crc = _backend.body_crc
    check_record = _backend.check_record
    choose_units = _backend.choose_units
    column_crcs = _backend.column_crcs
    cut_wire_runs = _backend.cut_wire_runs
    decode_columns = _backend.decode_columns
    encode_batch = _backend.encode_batch
    encode_message = _backend.encode_message
    encode_put = _backend.encode_put
    find_unusual = _backend.find_unusual
    gather_records = _backend.gather_records
    inspect_run = _backend.inspect_run
    java_hash = _backend.java_hash
    join_client_batch = _backend.join_client_batch
    join_sent_replies = _backend.join_sent_replies
    list_message_ids = _backend.list_message_ids
    measure_batch = _backend.measure_batch
    read_plain_send = _backend.read_plain_send
    read_sends = _backend.read_sends
    relocate_run = _backend.relocate_run
    scan_records = _backend.scan_records
    split_client_batch = _backend.split_client_batch


def codec_backend() -> str:
    """Which codec is in use: "native" or "python"."""
    return _backend_name
