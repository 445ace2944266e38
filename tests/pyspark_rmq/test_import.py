"""`import pyspark_rmq` is what every Python worker of Spark does first."""

from __future__ import annotations

import subprocess
import sys

import pytest

import broker_core
import pyspark_rmq

_PROBE = """
import sys, threading
before = set(sys.modules)
import pyspark_rmq
heavy = {"pyspark", "pyarrow", "pandas", "numpy", "asyncio", "broker_core"} & set(sys.modules)
assert not heavy - before, heavy
assert threading.active_count() == 1
"""


def test_import_loads_and_starts_nothing() -> None:
    subprocess.run([sys.executable, "-c", _PROBE], check=True, timeout=300)


def test_public_names() -> None:
    assert pyspark_rmq.__all__ == [
        "Cluster",
        "DefaultSource",
        "EmbeddedBroker",
        "EmbeddedCluster",
        "register",
        "session",
        "spark_conf",
        "watch",
    ]
    assert set(pyspark_rmq.__all__) <= set(dir(pyspark_rmq))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = pyspark_rmq.nothing_here


def test_the_embedded_broker_is_found_without_spark() -> None:
    assert pyspark_rmq.EmbeddedBroker is broker_core.EmbeddedBroker
