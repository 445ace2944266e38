"""The README's Python blocks, pasted twice into one process and once into the next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.stream_runs import LATE

pytest.importorskip("pyspark")

PROJECT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ATTEMPTS = 3


def blocks() -> list[str]:
    return _BLOCK.findall((PROJECT / "README.md").read_text(encoding="utf-8"))


def run(directory: Path, times: int) -> subprocess.CompletedProcess[str]:
    directory.mkdir(exist_ok=True)
    script = directory / "pasted.py"
    script.write_text("\n".join(blocks() * times), encoding="utf-8")
    environment = {
        **os.environ,
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_every_block_runs_again(tmp_path: Path) -> None:
    assert len(blocks()) >= 3
    # A busy machine may be slower than Spark waits for its Python processes.
    for attempt in range(_ATTEMPTS):
        place = tmp_path / str(attempt)
        runs = [run(place, 2), run(place, 1)]
        if not any(LATE in done.stderr for done in runs):
            break
    for done in runs:
        assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    counts = [re.findall(r"^\d+000$", done.stdout, re.MULTILINE) for done in runs]
    assert counts == [["1000", "2000"], ["3000"]]
