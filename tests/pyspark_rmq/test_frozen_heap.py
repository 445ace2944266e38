"""Reused Spark workers do not garbage-collect long-lived objects after every call."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from pyspark_rmq import frozen_heap

pytest.importorskip("pyspark.sql.datasource")

from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rmq.data_source import RmqDataSource

OPTIONS = {"rmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "T"}
VALUE = StructType([StructField("value", BinaryType())])


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As after a fork."""
    monkeypatch.setattr(frozen_heap, "_frozen_in", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_planning_a_read_freezes_once() -> None:
    assert gc.get_freeze_count() == 0
    RmqDataSource(OPTIONS).reader(VALUE)
    frozen = gc.get_freeze_count()
    assert frozen > 0
    kept = [[] for _ in range(100)]
    RmqDataSource(OPTIONS).reader(VALUE)
    assert gc.get_freeze_count() <= frozen + len(kept) // 2


def test_only_a_worker_is_frozen_by_a_source_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    RmqDataSource(OPTIONS)
    assert gc.get_freeze_count() == 0
    daemon = ModuleType("__main__")
    daemon.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    RmqDataSource(OPTIONS)
    assert gc.get_freeze_count() > 0
