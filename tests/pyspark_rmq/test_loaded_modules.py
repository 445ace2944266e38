"""What a new Python worker has to load: Spark starts several of them for each query.

Every test asks a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

_READ = """
from broker_core import MessageQueue
from pyspark_rmq.source.rows.message_batches import _partitions
_partitions(None, {}, MessageQueue("t", "b", 3), 5)
"""
_DECODE = """
import struct
import pyarrow as pa
from pyspark_rmq.payloads.json_columns import JsonDecoder
kind = pa.struct([pa.field("a", pa.int32()), pa.field("d", pa.date32())])
body = b'{"a": 1, "d": "2024-05-31"}'
bounds = pa.py_buffer(struct.pack("=2i", 0, len(body)))
bodies = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(body)])
assert JsonDecoder(kind).by_column(bodies) is not None
"""


def loaded(code: str) -> set[str]:
    """Top-level packages and modules of ours that a process has after `code`."""
    show = "import sys; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return set(done.stdout.split())


def test_finding_and_creating_the_source_loads_neither_arrow_nor_the_sink() -> None:
    modules = loaded("import pyspark_rmq; pyspark_rmq.DefaultSource({'topic': 't'}).name()")
    assert "pyspark_rmq.data_source" in modules
    assert not modules & {"pyarrow", "pandas", "pyspark_rmq.sink.publication"}


@pytest.mark.parametrize(
    "code",
    [
        "import pyspark_rmq.source.stream_reader",
        "import pyspark_rmq.source.batch_reader",
        "import pyspark_rmq.sink.stream_writer",
        "import pyspark_rmq.sink.batch_writer",
        _READ,
        _DECODE,
    ],
)
def test_readers_and_writers_do_not_load_pandas(code: str) -> None:
    assert "pandas" not in loaded(code)


def test_the_check_would_notice() -> None:
    assert "pandas" in loaded("import pyarrow; pyarrow.array([1])")
