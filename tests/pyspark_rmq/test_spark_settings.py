"""`spark_conf()`: its settings are documented; `tests/spark/test_spark_conf.py` runs with them."""

from __future__ import annotations

from pathlib import Path

import pyspark_rmq

PROJECT = Path(__file__).resolve().parents[2]


def test_the_answer_is_the_callers() -> None:
    pyspark_rmq.spark_conf().clear()
    assert set(pyspark_rmq.spark_conf()) == {
        "spark.buffer.size",
        "spark.python.unix.domain.socket.enabled",
    }


def test_every_setting_is_on_the_page() -> None:
    page = (PROJECT / "docs" / "source.md").read_text(encoding="utf-8")
    assert [n for n, v in pyspark_rmq.spark_conf().items() if f"`{n}={v}`" not in page] == []
