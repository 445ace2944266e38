"""`rmq.embedded=NAME`: the first of Spark's processes starts the broker, which ends with the JVM.

The JVM is a Python under the name `java` here; tests/spark has a real one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import EmbeddedBroker, named_broker
from broker_core.embedded.broker_process import BrokerProcess
from broker_core.embedded.process_identity import wait_for_end
from broker_core.embedded.shared_brokers import find_own
from broker_core.errors import InvalidArgument
from tests.cli.rmq_process import LIMIT_S, environment

# Starts the commands that it reads, two at a time, and prints what they print.
_JVM = """
import subprocess, sys
for line in sys.stdin:
    both = [
        subprocess.Popen([sys.argv[1], "-c", line], stdout=subprocess.PIPE) for _ in range(2)
    ]
    print(*(worker.communicate()[0].decode().strip() for worker in both), flush=True)
"""
_PLAN = "from broker_core import named_broker; print(named_broker('demo'))"


class Jvm:
    """A program called `java` below this one."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        directory.mkdir()
        java = directory / "java"
        java.symlink_to(Path(sys.executable).resolve())
        self.process = subprocess.Popen(
            [java, "-c", _JVM, sys.executable, *arguments],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def planned(self) -> list[str]:
        """The addresses that two workers got."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{_PLAN}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(autouse=True)
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[Jvm]:
    started = Jvm(tmp_path / "jvm", "pyspark-shell")
    yield started
    started.kill()


def test_a_named_broker_is_started_once_and_ends_with_the_jvm(jvm: Jvm) -> None:
    first, second = jvm.planned()
    assert first == second
    assert jvm.planned() == [first, first]
    note = find_own("demo")
    assert note is not None
    assert note.owner_id == jvm.process.pid
    assert Path(note.directory, "store").is_dir()
    jvm.kill()
    assert wait_for_end(note.process_id, LIMIT_S)
    assert not Path(note.directory).exists()
    assert find_own("demo") is None


def test_shared_returns_the_one_that_spark_has_started(jvm: Jvm) -> None:
    [address, _] = jvm.planned()
    broker = EmbeddedBroker.shared("demo", topics={"orders": 2})
    try:
        assert broker.is_running
        assert broker.name_server == address
        assert broker.produce("orders", ["a"]) == 1
        assert EmbeddedBroker.shared("demo") is broker
        with broker.faults.paused():
            assert broker.is_running
        # Killed and started again, it belongs to this process.
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.name_server == address
        assert len(broker.consume("orders")) == 1
        assert jvm.planned() == [address, address]
    finally:
        broker.stop()
    assert not broker.is_running


def test_a_broker_that_its_program_has_killed_is_not_replaced(jvm: Jvm) -> None:
    """The program starts it again, with its messages; a query that comes earlier fails."""
    with EmbeddedBroker.shared("demo") as broker:
        address = broker.name_server
        assert jvm.planned() == [address, address]
        broker.kill()
        assert jvm.planned() == []
        assert find_own("demo") is None
        broker.start()
        assert jvm.planned() == [address, address]


def test_a_broker_that_starts_again_is_not_replaced(
    jvm: Jvm, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[list[str]] = []
    waits = BrokerProcess.wait_ready

    def wait_ready(process: BrokerProcess, *arguments: Any) -> Any:
        planned.append(jvm.planned())
        return waits(process, *arguments)

    with EmbeddedBroker.shared("demo") as broker:
        monkeypatch.setattr(BrokerProcess, "wait_ready", wait_ready)
        broker.kill()
        broker.start()
        broker.restart()
        assert planned == [[], []]
        assert jvm.planned() == [broker.name_server] * 2


def test_other_settings_are_refused(jvm: Jvm) -> None:
    jvm.planned()
    broker = EmbeddedBroker.shared("demo")
    try:
        with pytest.raises(InvalidArgument, match=r"runs with another store: stop\(\) it"):
            EmbeddedBroker.shared("demo", store="kept")
    finally:
        broker.stop()


def test_a_spark_of_this_program_does_not_use_brokers_of_others(jvm: Jvm, tmp_path: Path) -> None:
    [address, _] = jvm.planned()
    other = Jvm(tmp_path / "other", "pyspark-shell")
    try:
        assert set(other.planned()) != {address}
    finally:
        other.kill()
    # A server for many programs does.
    server = Jvm(tmp_path / "server")
    try:
        assert server.planned() == [address, address]
    finally:
        server.kill()


def test_without_spark_it_must_be_there() -> None:
    with pytest.raises(InvalidArgument, match=r'Start it.*EmbeddedBroker\.shared\("demo"\)'):
        named_broker("demo")
