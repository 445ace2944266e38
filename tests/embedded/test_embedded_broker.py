"""`EmbeddedBroker`: one process, no traces, the same store and ports after a crash."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument
from tests.cli.rmq_process import LIMIT_S, environment
from tests.embedded.one_topic import bodies, queue_count, send


def is_there(process_id: int) -> bool:
    """Whether a process runs; one that only waits for its parent's attention does not."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_messages_go_in_and_come_out_and_nothing_is_left() -> None:
    with EmbeddedBroker(topics={"orders": 4}) as broker:
        send(broker.name_server, "orders", b"1", b"2", b"3")
        assert bodies(broker.name_server, "orders") == [b"1", b"2", b"3"]
        directory, process_id = broker.store_dir.parent, broker.process_id
        assert (broker.store_dir / "commitlog").is_dir()
        assert directory.stat().st_mode & 0o777 == 0o700
        assert "EmbeddedBroker 127.0.0.1:" in repr(broker)
    assert not is_there(process_id)
    assert not directory.exists()
    assert not broker.is_running
    broker.stop()


def test_topics_are_there_at_the_start() -> None:
    with EmbeddedBroker(topics={"orders": 3, "wide": 40}) as broker:
        assert queue_count(broker.name_server, "orders") == 3
        assert queue_count(broker.name_server, "wide") == 40


def test_a_store_of_ones_own_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "kept"
    with EmbeddedBroker(store=store) as broker:
        assert broker.store_dir == store
        send(broker.name_server, "orders", b"kept")
    assert (store / "commitlog").is_dir()
    with EmbeddedBroker(store_dir=str(store)) as broker:
        assert bodies(broker.name_server, "orders") == [b"kept"]
    with pytest.raises(InvalidArgument, match="the same setting"):
        EmbeddedBroker(store=store, store_dir=tmp_path)


def test_a_store_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = tmp_path / "file" / "data" / "store"
    with pytest.raises(EmbeddedBrokerFailed) as found:
        EmbeddedBroker(store=str(store)).start()
    assert str(found.value) == (
        f"store='{store}' cannot be used: directory {store.parent} cannot be made: Not a directory"
    )


def test_a_checkpoint_is_kept_as_long_as_the_store(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        temporary = Path(broker.checkpoint("orders"))
        temporary.mkdir(parents=True)
        assert broker.store_dir not in temporary.parents
        for name in ("", "a/b", ".."):
            with pytest.raises(InvalidArgument, match="not the name of a directory"):
                broker.checkpoint(name)
    assert not temporary.exists()
    kept = EmbeddedBroker(store=tmp_path / "kept")
    assert kept.checkpoint() == str(tmp_path / "kept-checkpoints" / "query")


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_crash_and_a_restart_on_the_same_ports(sync_flush: bool) -> None:
    with EmbeddedBroker(sync_flush=sync_flush, topics={"orders": 2}) as broker:
        before = broker.name_server, broker.address
        send(broker.name_server, "orders", *(b"%d" % n for n in range(10)))
        first = broker.process_id
        broker.kill()
        assert not is_there(first)
        assert not broker.is_running
        with pytest.raises(EmbeddedBrokerFailed, match="not running"):
            broker.process_id  # noqa: B018 - reading it is the test
        broker.restart()
        assert (broker.name_server, broker.address) == before
        assert len(bodies(broker.name_server, "orders")) == 10
        second = broker.process_id
        broker.restart()
        assert broker.process_id != second
        assert len(bodies(broker.name_server, "orders")) == 10
        assert queue_count(broker.name_server, "orders") == 2


def test_several_at_once() -> None:
    topics = {"orders": 1}
    with EmbeddedBroker(topics=topics) as one, EmbeddedBroker(topics=topics) as other:
        assert len({one.name_server, one.address, other.name_server, other.address}) == 4
        send(one.name_server, "orders", b"one")
        send(other.name_server, "orders", b"other")
        assert bodies(one.name_server, "orders") == [b"one"]
        assert bodies(other.name_server, "orders") == [b"other"]


def test_start_twice_is_one_broker() -> None:
    broker = EmbeddedBroker()
    try:
        process_id = broker.start().process_id
        assert broker.start().process_id == process_id
    finally:
        broker.stop()


def test_a_stopped_broker_starts_again() -> None:
    broker = EmbeddedBroker(topics={"orders": 1})
    with broker:
        send(broker.name_server, "orders", b"gone")
    with broker:
        send(broker.name_server, "orders", b"new")
        assert bodies(broker.name_server, "orders") == [b"new"]


def test_settings_of_the_broker() -> None:
    with EmbeddedBroker(properties={"brokerName": "b9", "maxMessageSize": "1000"}) as broker:
        assert "broker b9 at" in broker.log_path.read_text()


def test_an_interrupt_is_meant_for_the_application() -> None:
    with EmbeddedBroker() as broker:
        assert os.getsid(broker.process_id) != os.getsid(0)


# Failures


def test_a_start_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # As kernels of Jupyter have it.
    monkeypatch.setenv("FORCE_COLOR", "1")
    broker = EmbeddedBroker(properties={"brokerRole": "KING"})
    with pytest.raises(EmbeddedBrokerFailed) as failed:
        broker.start()
    assert str(failed.value).startswith(
        "the broker did not start: properties: brokerRole='KING' cannot be used: one of "
    )
    assert "\n" not in str(failed.value)
    assert not broker.is_running
    with pytest.raises(EmbeddedBrokerFailed, match="was not started"):
        broker.name_server  # noqa: B018 - reading it is the test


def test_a_taken_port_is_a_failed_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedBrokerFailed, match=str(port)):
            EmbeddedBroker(name_server_port=port).start()


def test_a_start_that_takes_too_long() -> None:
    broker = EmbeddedBroker(start_timeout_s=0.001)
    with pytest.raises(EmbeddedBrokerFailed, match=r"not ready within 0\.001 s"):
        broker.start()
    assert not broker.is_running


@pytest.mark.parametrize("count", [0, -1, 1.5, "4", True])
def test_queues_are_counted_in_whole_numbers(count: object) -> None:
    with pytest.raises(InvalidArgument, match="orders"):
        EmbeddedBroker(topics={"orders": count})  # type: ignore[dict-item]


def test_a_topic_that_cannot_be_made_is_a_failed_start() -> None:
    with pytest.raises(EmbeddedBrokerFailed, match=r"topic orders cannot have 2000 read queues"):
        EmbeddedBroker(topics={"orders": 2_000}).start()


# The end of the owner


def test_a_broker_without_references_ends() -> None:
    broker = EmbeddedBroker().start()
    process_id, directory = broker.process_id, broker.store_dir.parent
    del broker
    gc.collect()
    assert not is_there(process_id)
    assert not directory.exists()


def run_owner(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )


STARTED = """
import sys
from broker_core import EmbeddedBroker
broker = EmbeddedBroker().start()
print(broker.process_id, broker.store_dir.parent, broker.name_server, flush=True)
"""


def facts(owner: subprocess.Popen[bytes]) -> tuple[int, Path, str]:
    assert owner.stdout is not None
    process_id, directory, name_server = owner.stdout.readline().decode().split()
    return int(process_id), Path(directory), name_server


def test_an_owner_that_ends_without_a_stop() -> None:
    with run_owner(STARTED) as owner:
        process_id, directory, _ = facts(owner)
        assert owner.wait(LIMIT_S) == 0
    assert not is_there(process_id)
    assert not directory.exists()


def test_an_owner_that_is_killed() -> None:
    with run_owner(STARTED + "sys.stdin.read()") as owner:
        process_id, directory, name_server = facts(owner)
        send(name_server, "orders", b"x")
        # Holds on to the broker until it is gone, so that there is something to wait for.
        watch = os.pidfd_open(process_id)
        owner.send_signal(signal.SIGKILL)
    try:
        assert select.select([watch], [], [], LIMIT_S)[0]
    finally:
        os.close(watch)
    assert not directory.exists()


FORKED = (
    STARTED
    + """
import os
child = os.fork()
if child == 0:
    sys.exit(0)  # runs what is registered for the end of the interpreter
os.waitpid(child, 0)
print("alive" if broker.is_running and broker.store_dir.is_dir() else "gone", flush=True)
"""
)


def test_a_fork_of_the_owner_does_not_own_it() -> None:
    with run_owner(FORKED) as owner:
        facts(owner)
        assert owner.communicate(timeout=LIMIT_S)[0] == b"alive\n"


def test_a_broker_starts_from_any_directory(tmp_path: Path) -> None:
    # A file of the application that has the name of a module the broker needs.
    (tmp_path / "logging.py").write_text("raise SystemExit('the wrong module')")
    script = f"import os\nos.chdir({str(tmp_path)!r})\n{STARTED}"
    with run_owner(script) as owner:
        facts(owner)
        assert owner.wait(LIMIT_S) == 0
