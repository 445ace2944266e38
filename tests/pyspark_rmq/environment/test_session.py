"""The Python of a session, without starting one; tests/spark/test_interpreters.py does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core import errors
from pyspark_rmq.environment.session import (
    ensure_python,
    is_classic,
    register,
    session,
    warn_of_environment,
)


class Context:
    """What a session reports about its workers."""

    def __init__(self, master: str, python: str) -> None:
        self.master = master
        self.pythonExec = python


class Session:
    """A session with such a context."""

    def __init__(self, master: str, python: str) -> None:
        self.sparkContext = Context(master, python)


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    path = tmp_path / "bare-python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_local_session_is_repaired(bare_python: str) -> None:
    session = Session("local[2]", bare_python)
    ensure_python(session)
    assert session.sparkContext.pythonExec == sys.executable


def test_elsewhere_it_is_refused(bare_python: str) -> None:
    session = Session("spark://elsewhere:7077", bare_python)
    with pytest.raises(errors.InvalidArgument, match="which does not have pyspark_rmq"):
        ensure_python(session)
    assert session.sparkContext.pythonExec == bare_python


def test_what_works_is_left_alone() -> None:
    session = Session("spark://elsewhere:7077", sys.executable)
    ensure_python(session)
    assert session.sparkContext.pythonExec == sys.executable


def test_the_server_of_spark_connect_chooses_its_python() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    assert not is_classic(remote)
    ensure_python(remote)


def test_a_server_of_spark_connect_in_this_program_is_checked(
    bare_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`remote("local")` starts it with the environment of this program."""
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    monkeypatch.setenv("SPARK_LOCAL_REMOTE", "1")
    monkeypatch.setenv("PYSPARK_PYTHON", bare_python)
    with pytest.raises(errors.InvalidArgument, match="which does not have pyspark_rmq"):
        ensure_python(remote)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    ensure_python(remote)


OPTIONS = """
import pyspark.sql
from pyspark_rmq import EmbeddedBroker
with EmbeddedBroker() as broker:
    broker.options
    broker.options
"""
SETTINGS = """
import pyspark.sql
from pyspark_rmq import spark_conf
spark_conf()
spark_conf()
"""
REMOTE_SETTINGS = """
import os
os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
import pyspark.sql
from pyspark_rmq import spark_conf
spark_conf()
"""


LOCAL_SERVER = f"""
import os
os.environ["SPARK_LOCAL_REMOTE"] = "1"
{REMOTE_SETTINGS}"""


@pytest.mark.parametrize("program", [OPTIONS, SETTINGS, LOCAL_SERVER])
def test_options_and_settings_warn_once_if_spark_would_run_another_python(
    program: str, bare_python: str
) -> None:
    for python, count in ((bare_python, 1), (sys.executable, 0)):
        assert _warnings(program, python) == count


def test_settings_for_a_server_of_spark_connect_do_not_warn(bare_python: str) -> None:
    assert _warnings(REMOTE_SETTINGS, bare_python) == 0


def test_an_old_spark_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "Spark 3.5.4 has no data sources in Python for streams: install Spark 4.0 or newer, with"
        " pip install 'pyspark[sql]>=4.0,<4.4'"
    )
    monkeypatch.setattr("pyspark.__version__", "3.5.4")
    for use in (session, lambda: register(Session("local[2]", sys.executable))):
        with pytest.raises(errors.InvalidArgument) as found:
            use()
        assert str(found.value) == f"{text}\nSee docs/errors.md#old-spark"
    monkeypatch.setattr("pyspark_rmq.environment.session._warned", set())
    warn_of_environment()
    warn_of_environment()
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [text]


def _warnings(program: str, python: str) -> int:
    """How often the program warns of Spark's Python if that is `python`."""
    pytest.importorskip("pyspark")
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    environment.pop("PYSPARK_DRIVER_PYTHON", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env=environment,
        cwd=Path(__file__).resolve().parents[3],
    )
    return done.stderr.count(" WARNING rmq: Spark runs ")
