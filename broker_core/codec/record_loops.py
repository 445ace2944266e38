"""The batch codec in pure Python: the specification that the native module equals.

Same functions, results, errors and reason texts as `broker_core.codec._native`; tests compare the
two on every kind of input. Use `record_columns`, which picks one of them.
"""

from __future__ import annotations

from broker_core.codec.client_batch_loops import list_message_ids, split_client_batch
from broker_core.codec.client_join_loops import join_client_batch
from broker_core.codec.column_crc_loops import column_crcs
from broker_core.codec.index_record import append_index_entries
from broker_core.codec.java_hash import java_hash
from broker_core.codec.plain_send_loops import read_plain_send
from broker_core.codec.record_checks import body_crc, check_record
from broker_core.codec.record_column_loops import decode_columns, gather_records
from broker_core.codec.record_encode_loops import encode_batch, measure_batch
from broker_core.codec.record_message_loops import encode_message, encode_put
from broker_core.codec.record_run_loops import inspect_run, relocate_run
from broker_core.codec.record_scan_loops import scan_records
from broker_core.codec.send_burst_loops import join_sent_replies, read_sends
from broker_core.codec.unit_choice import choose_units
from broker_core.codec.unusual_records import find_unusual
from broker_core.codec.wire_runs import cut_wire_runs

__all__ = [
    "append_index_entries",
    "body_crc",
    "check_record",
    "choose_units",
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
