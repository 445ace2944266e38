"""`spark_conf()`: the settings arrive at the workers, and source and sink work with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_rmq import EmbeddedBroker

pyspark = pytest.importorskip("pyspark")

PROJECT = Path(__file__).resolve().parents[2]


def test_rows_and_workers_of_a_session_with_them(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"first": 2, "second": 2}) as broker:
        arguments = [broker.name_server, str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.transfer_driver", *arguments],
            cwd=PROJECT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3_000:]
    knows_unix_sockets = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "all": True,
        "SPARK_BUFFER_SIZE": "1048576",
        "PYTHON_UNIX_DOMAIN_ENABLED": "true" if knows_unix_sockets else "",
    }
