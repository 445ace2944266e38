"""Warnings have a time and a prefix, unless the program has configured logging."""

from __future__ import annotations

import subprocess
import sys

import pytest

WARN = """
import logging
from broker_core import LoopThread
LoopThread().stop()
LoopThread().stop()
{configure}
logging.getLogger("pyspark_rmq.source").warning("broker %s does not answer", "a")
logging.getLogger("broker_core.client").info("not shown")
"""


def printed(configure: str) -> list[str]:
    script = WARN.format(configure=configure)
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_warning_has_a_time_and_a_prefix() -> None:
    [line] = printed("")
    time, rest = line.split(" ", 1)
    assert rest == "WARNING rmq: broker a does not answer"
    assert len(time) == len("2024-05-31T12:00:00")


@pytest.mark.parametrize("form", ["%(name)s says %(message)s"])
def test_a_program_that_configures_logging_has_its_own_form(form: str) -> None:
    lines = printed(f"logging.basicConfig(format={form!r})")
    assert lines == ["pyspark_rmq.source says broker a does not answer"]
