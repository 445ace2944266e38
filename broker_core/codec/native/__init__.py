"""Functions that exist twice: compiled in `_native`, and in Python in `codec.reference`.

This module picks one backend at import; everything else imports the functions from here.
`RMQ_CODEC=python` forces Python; with `RMQ_CODEC=native` a missing native module is an ImportError.

A new native function needs its C code with an entry in the table of that C file, its Python twin
with an entry in `__all__` of the twin file, and its name below.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

# Both backends have the same signatures; the types are those of the twins.
if TYPE_CHECKING:
    from broker_core.codec.reference.block import new_buffer as new_buffer
    from broker_core.codec.reference.client_batch import join_client_batch as join_client_batch
    from broker_core.codec.reference.client_batch import list_message_ids as list_message_ids
    from broker_core.codec.reference.client_batch import split_client_batch as split_client_batch
    from broker_core.codec.reference.crc import body_crc as body_crc
    from broker_core.codec.reference.crc import column_crcs as column_crcs
    from broker_core.codec.reference.decode import decode_columns as decode_columns
    from broker_core.codec.reference.encode import encode_batch as encode_batch
    from broker_core.codec.reference.encode import encode_message as encode_message
    from broker_core.codec.reference.encode import encode_put as encode_put
    from broker_core.codec.reference.encode import measure_batch as measure_batch
    from broker_core.codec.reference.index import append_index_entries as append_index_entries
    from broker_core.codec.reference.plain_send import read_plain_send as read_plain_send
    from broker_core.codec.reference.run import find_unusual as find_unusual
    from broker_core.codec.reference.run import inspect_run as inspect_run
    from broker_core.codec.reference.run import relocate_run as relocate_run
    from broker_core.codec.reference.scan import check_record as check_record
    from broker_core.codec.reference.scan import scan_records as scan_records
    from broker_core.codec.reference.send_burst import count_records as count_records
    from broker_core.codec.reference.send_burst import join_sent_replies as join_sent_replies
    from broker_core.codec.reference.send_burst import read_sends as read_sends
    from broker_core.codec.reference.spans import adjacent_runs as adjacent_runs
    from broker_core.codec.reference.spans import choose_units as choose_units
    from broker_core.codec.reference.spans import cut_wire_runs as cut_wire_runs
    from broker_core.codec.reference.spans import gather_records as gather_records
    from broker_core.codec.reference.text import java_hash as java_hash

NATIVE_MODULE: Final = "broker_core.codec.native._native"
TWINS: Final = (
    "block", "client_batch", "crc", "decode", "encode", "index", "plain_send", "run", "scan",
    "send_burst", "spans", "text",
)  # fmt: skip

Functions = dict[str, Callable[..., Any]]


def native_functions() -> Functions:
    """The compiled functions by name; raises ImportError where they are not built."""
    module = import_module(NATIVE_MODULE)
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def python_functions() -> Functions:
    """The Python twins by name. Imports numpy, which takes longer than starting a broker."""
    modules = [import_module(f"broker_core.codec.reference.{stem}") for stem in TWINS]
    return {name: getattr(module, name) for module in modules for name in module.__all__}


def choose_backend(choice: str) -> tuple[str, Functions]:
    """Name and functions of the backend that a value of `RMQ_CODEC` selects."""
    if choice not in ("", "native", "python"):
        raise ImportError(f"RMQ_CODEC={choice!r} cannot be used: native, python or unset")
    if choice != "python":
        try:
            return "native", native_functions()
        except ImportError:
            if choice == "native":
                raise
    return "python", python_functions()


_backend, _functions = choose_backend(os.environ.get("RMQ_CODEC", ""))
globals().update(_functions)


def codec_backend() -> str:
    """The backend in use: "native" or "python"."""
    return _backend
