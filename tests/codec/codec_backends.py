"""The batch codecs that can be imported here, and columns to feed them with."""

from __future__ import annotations

import contextlib
from types import ModuleType

import numpy as np

from broker_core.codec.native import Functions, native_functions, python_functions
from broker_core.codec.records.column_batch import Column, ColumnBatch
from broker_core.codec.records.host_address import encode_host


def backend(name: str, functions: Functions) -> ModuleType:
    """A module with the functions of one backend."""
    module = ModuleType(name)
    vars(module).update(functions)
    return module


PURE_PYTHON = backend("pure_python", python_functions())
BACKENDS: list[ModuleType] = [PURE_PYTHON]
with contextlib.suppress(ImportError):
    BACKENDS.append(backend("compiled", native_functions()))

HOST = encode_host(("127.0.0.1", 10911))
HOST_V6 = encode_host(("fe80::1", 10911))


def backend_name(codec: ModuleType) -> str:
    """Test id of a backend."""
    return codec.__name__


def column(*values: bytes, width: int = 4) -> Column:
    """Codec column of the values given."""
    offsets = np.cumsum([0, *map(len, values)])
    return b"".join(values), offsets.astype(np.int32 if width == 4 else np.int64), width


def batch_of(*bodies: bytes, **fields: object) -> ColumnBatch:
    """Batch of the bodies given, to queue 0 of `TopicTest` unless `fields` say otherwise."""
    batch = ColumnBatch(
        len(bodies),
        ((b"TopicTest", 0),),
        None,
        column(*bodies),
        born_timestamp=1700000000000,
        born_host=HOST,
        store_host=HOST,
    )
    return batch._replace(**fields)


def encode_all(
    codec: ModuleType, batch: ColumnBatch, position: int = 0, first_offset: int = 0
) -> bytes:
    """Every record of the batch, laid out from log `position` (-1: templates)."""
    total, _ = codec.measure_batch(batch)
    out = bytearray(total + 8)
    next_offsets = np.full(len(batch.queues), first_offset, np.int64)
    end = codec.encode_batch(batch, 0, next_offsets, 1700000000123, out, 0, len(out), position)
    assert end == (batch.count, total)
    return bytes(out[:total])
