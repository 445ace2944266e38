"""The smoke set on the older releases of Spark, each in a virtualenv of its own.

Collected in the complete run only (`make test-spark-versions`), which fetches the releases.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.interop.maven_artifacts import PeerUnavailable
from tests.spark.spark_versions import RELEASES, spark_python

PROJECT = Path(__file__).resolve().parents[2]
# Limits of a batch and AvailableNow came with 4.2, so it runs all that the source has.
FILES = {
    "4.0.5": (
        "test_smoke.py", "test_spark_conf.py", "test_payloads.py", "test_sink_identity.py",
    ),
    "4.1.4": (
        "test_smoke.py", "test_spark_conf.py", "test_connect.py", "test_sink_identity.py",
    ),
    "4.2.1": (
        "test_smoke.py", "test_spark_conf.py", "test_batch_read.py", "test_stream_read.py",
        "test_source_tables.py", "test_connect.py", "test_replay.py", "test_protected.py",
        "test_payloads.py", "test_sink_identity.py",
    ),
}  # fmt: skip


@pytest.mark.timeout(1_000)
@pytest.mark.parametrize("release", RELEASES)
def test_release(release: str) -> None:
    try:
        python = spark_python(release)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    files = [f"tests/spark/{name}" for name in FILES[release]]
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
