"""Every example runs alone, says what happened and exits 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.stream_runs import LATE

PROJECT = Path(__file__).resolve().parent.parent
# A busy machine may be slower than Spark waits for its Python processes.
ATTEMPTS = 3
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert {path.name for path in EXAMPLES} >= {"first_steps.py", "store_demo.py"}


# Small enough for every run; by hand they do more.
ARGUMENTS = {"pipeline_demo.py": ["--orders", "12000"]}
SPARK_EXAMPLES = frozenset(path.name for path in EXAMPLES if "pyspark" in path.read_text())


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            path,
            id=path.name,
            marks=[pytest.mark.spark] if path.name in SPARK_EXAMPLES else [],
        )
        for path in EXAMPLES
    ],
)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    if example.name in SPARK_EXAMPLES:
        # Each starts a JVM for a few seconds of work, which is no time to compile in.
        environment["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    else:
        # What Spark and its JVM bridge warn about is theirs.
        environment["PYTHONWARNINGS"] = "error"
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, str(example), *ARGUMENTS.get(example.name, [])],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode == 0 or LATE not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    assert list(tmp_path.iterdir()) == []
