"""Which Python Spark would run, and what is said about it. Programs are real ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyspark_rmq.environment.interpreters import (
    Interpreter,
    environment_problem,
    finder,
    look_at,
    problem_of,
    worker,
)

WAY_OUT = (
    f": set PYSPARK_PYTHON={sys.executable} and PYSPARK_DRIVER_PYTHON to the same, before Spark"
    " starts, or make the session with pyspark_rmq.session()\n"
    "See docs/errors.md#spark-runs-another-python"
)


def program(directory: Path, text: str) -> str:
    path = directory / "python-of-spark"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_which_one_spark_runs() -> None:
    both = {"PYSPARK_PYTHON": "/a/python", "PYSPARK_DRIVER_PYTHON": "jupyter"}
    assert finder(both) == ("jupyter", "PYSPARK_DRIVER_PYTHON=jupyter")
    assert worker(both) == ("/a/python", "PYSPARK_PYTHON=/a/python")
    assert finder({}) == worker({}) == ("python3", "PYSPARK_PYTHON is not set")


def test_this_one_can_be_used() -> None:
    assert environment_problem({"PYSPARK_PYTHON": sys.executable}) == ""


def test_a_python_without_the_package(tmp_path: Path) -> None:
    # Isolated and without site-packages: as another installation would be.
    command = program(tmp_path, f'exec {sys.executable} -I -S "$@"')
    assert "pyspark_rmq" in look_at(command).missing
    assert environment_problem({"PYSPARK_PYTHON": command}) == (
        f"Spark runs {command} ({sys.executable}) as Python, because PYSPARK_PYTHON={command},"
        f" which does not have pyspark_rmq{WAY_OUT}"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo usage: jupyter", "and it does not run Python code"),
        ("""echo '["/x/python", "3.9.1", []]'""", "which is Python 3.9.1, and this program runs "),
        ("""echo '["/x/python", "3.9.1", ["pyarrow"]]'""", "which does not have pyarrow"),
    ],
)
def test_what_else_may_be_wrong(tmp_path: Path, text: str, reason: str) -> None:
    command = program(tmp_path, text)
    found = problem_of(Interpreter(command, f"PYSPARK_DRIVER_PYTHON={command}"))
    assert f"because PYSPARK_DRIVER_PYTHON={command}, {reason}" in found
    assert found.endswith(WAY_OUT)
    assert environment_problem({"PYSPARK_DRIVER_PYTHON": command}) == found


def test_a_program_that_is_not_there() -> None:
    assert problem_of(Interpreter("no-such-python", "x=y")) == (
        f"Spark runs no-such-python as Python, because x=y, and there is no such program{WAY_OUT}"
    )
