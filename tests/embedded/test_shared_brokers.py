"""`EmbeddedBroker.shared`: one broker per name and process, found from the processes below it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core import EmbeddedBroker, named_broker
from broker_core.embedded.process_identity import birth_of, send_signal, wait_for_end
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument
from tests.cli.rmq_process import LIMIT_S, environment


@pytest.fixture(autouse=True)
def own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of other tests and users are not seen."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def shared() -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker.shared("demo", topics={"orders": 2})
    yield broker
    broker.stop()


def test_a_second_call_finds_the_first_broker(shared: EmbeddedBroker) -> None:
    shared.produce("orders", ["a"])
    again = EmbeddedBroker.shared("demo", topics={"orders": 2})
    assert again is shared
    assert [m.body for m in again.consume("orders")] == [b"a"]
    assert repr(again) == f"<EmbeddedBroker 'demo' {shared.name_server}>"
    assert named_broker("demo") == shared.name_server


def test_topics_of_a_later_call_are_made(shared: EmbeddedBroker) -> None:
    EmbeddedBroker.shared("demo", topics={"orders": 2, "late": 3})
    assert len(shared.topic("late").stats()) == 3


def test_a_broker_that_was_killed_or_stopped_starts_again(shared: EmbeddedBroker) -> None:
    shared.produce("orders", ["a"])
    shared.kill()
    assert not shared.is_running
    with pytest.raises(InvalidArgument, match=r'Start it.*EmbeddedBroker\.shared\("demo"\)'):
        named_broker("demo")
    again = EmbeddedBroker.shared("demo")
    assert again is shared
    assert len(again.consume("orders")) == 1
    assert named_broker("demo") == again.name_server
    again.stop()
    with pytest.raises(InvalidArgument, match="no broker of this name"):
        named_broker("demo")
    assert EmbeddedBroker.shared("demo").is_running


def test_other_settings_are_refused(shared: EmbeddedBroker, tmp_path: Path) -> None:
    for settings in (
        {"store": tmp_path / "kept"},
        {"properties": {"brokerName": "other"}},
        {"sync_flush": True},
        {"broker_port": 1},
    ):
        with pytest.raises(InvalidArgument, match=r"runs with another .*: stop\(\) it"):
            EmbeddedBroker.shared("demo", **settings)
    assert EmbeddedBroker.shared("demo", sync_flush=False) is shared


def test_other_settings_after_a_stop(shared: EmbeddedBroker, tmp_path: Path) -> None:
    shared.stop()
    other = EmbeddedBroker.shared("demo", store=tmp_path / "kept")
    try:
        assert other is not shared
        assert EmbeddedBroker.shared("demo") is other
        assert other.store_dir == tmp_path / "kept"
    finally:
        other.stop()


@pytest.mark.parametrize("name", ["", " ", 7, "a\nb"])
def test_a_name_is_a_text(name: object) -> None:
    with pytest.raises(InvalidArgument, match="cannot name a broker"):
        EmbeddedBroker.shared(name)  # type: ignore[arg-type]


def test_a_store_that_is_open_in_this_process(tmp_path: Path) -> None:
    with EmbeddedBroker(store=tmp_path / "kept") as first:
        (tmp_path / "link").symlink_to(tmp_path / "kept")
        with pytest.raises(EmbeddedBrokerFailed) as refused:
            EmbeddedBroker(store=tmp_path / "link").start()
        text = str(refused.value)
        assert f"is open in this process already, by {first!r}" in text
        assert "stop() that one first, or start it as EmbeddedBroker.shared(name, store=…)" in text
        assert first.restart().is_running
    with EmbeddedBroker(store=tmp_path / "kept") as second:
        assert second.is_running


def test_a_store_of_a_shared_broker(tmp_path: Path) -> None:
    broker = EmbeddedBroker.shared("kept", store=tmp_path / "kept")
    try:
        assert EmbeddedBroker.shared("kept", store=tmp_path / "kept") is broker
        with pytest.raises(EmbeddedBrokerFailed, match=r'EmbeddedBroker\.shared\("kept"\) returns'):
            EmbeddedBroker(store=tmp_path / "kept").start()
    finally:
        broker.stop()


# Other processes

_OWNER = """
import sys
from broker_core import EmbeddedBroker
print(EmbeddedBroker.shared("demo").name_server, flush=True)
sys.stdin.read()
"""
_ASKING = "from broker_core import named_broker; print(named_broker('demo'))"


def _asked() -> str:
    return subprocess.run(
        [sys.executable, "-c", _ASKING],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    ).stdout.strip()


def test_a_process_below_finds_the_broker_of_its_own_owner(shared: EmbeddedBroker) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        address = other.stdout.readline().strip()
        assert address not in ("", shared.name_server)
        assert _asked() == shared.name_server
        # Only the other one is left, which is no relative.
        shared.stop()
        assert _asked() == address
        other.kill()
        other.wait(LIMIT_S)
        with pytest.raises(InvalidArgument, match="no broker of this name"):
            named_broker("demo")
    # The killed owner left its note behind; the next start removes it.
    notes = Path(tempfile.gettempdir())
    assert len(list(notes.glob("pyspark-rmq-*/broker-*.json"))) == 1
    EmbeddedBroker.shared("demo")
    [left] = notes.glob("pyspark-rmq-*/broker-*.json")
    assert json.loads(left.read_text())["owner_id"] == os.getpid()


_KERNEL = """
import sys
from broker_core import EmbeddedBroker
broker = EmbeddedBroker.shared("demo", store=sys.argv[1], topics={"orders": 1})
broker.produce("orders", ["a"])
print(broker.process_id, flush=True)
sys.stdin.read()
"""


def test_a_kernel_that_was_killed_and_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "kept"
    with subprocess.Popen(
        [sys.executable, "-c", _KERNEL, str(store)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as kernel:
        assert kernel.stdout is not None
        broker_id = int(kernel.stdout.readline())
        # It cannot notice the end of the kernel: the store stays locked.
        send_signal(broker_id, signal.SIGSTOP)
        kernel.kill()
    again = EmbeddedBroker.shared("demo", store=store)
    try:
        assert [message.body for message in again.consume("orders")] == [b"a"]
        assert wait_for_end(broker_id, 0)
    finally:
        again.stop()
    assert f"waiting until that broker (process {broker_id}) has ended" in caplog.text


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_store_that_another_kernel_has_open(tmp_path: Path, is_shared: bool) -> None:
    store = tmp_path / "kept"
    with subprocess.Popen(
        [sys.executable, "-c", _KERNEL, str(store)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as kernel:
        assert kernel.stdout is not None
        kernel.stdout.readline()
        with pytest.raises(EmbeddedBrokerFailed) as refused:
            if is_shared:
                EmbeddedBroker.shared("mine", store=store)
            else:
                EmbeddedBroker(store=store).start()
        assert re.fullmatch(
            rf"store={re.escape(str(store))} is open in process {kernel.pid}, by its shared broker"
            r" 'demo': stop\(\) it there, use another directory, or use that broker:"
            r' Cluster\("127\.0\.0\.1:\d+"\)\nSee docs/errors\.md#store-is-open',
            str(refused.value),
        )
        kernel.communicate(timeout=LIMIT_S)
    # Its end leaves the store to others.
    with EmbeddedBroker(store=store) as again:
        assert len(again.consume("orders")) == 1


def test_several_foreign_brokers_of_one_name_are_listed(shared: EmbeddedBroker) -> None:
    [path] = Path(tempfile.gettempdir()).glob("pyspark-rmq-*/broker-*.json")
    note = json.loads(path.read_text())
    # Process 1 is no ancestor that counts, and is always there.
    note["owner_id"], note["owner_birth"] = 1, birth_of(1)
    for number in (1, 2):
        note["name_server"] = f"127.0.0.1:{number}"
        path.with_name(f"broker-1-{number}.json").write_text(json.dumps(note))
    path.with_name("broker-1-3.json").write_text("{")
    assert named_broker("demo") == shared.name_server
    path.unlink()
    with pytest.raises(InvalidArgument, match=r"several .*127\.0\.0\.1:1 of process 1"):
        named_broker("demo")


def test_only_this_user_can_read_the_notes(shared: EmbeddedBroker) -> None:
    [folder] = Path(tempfile.gettempdir()).glob("pyspark-rmq-*")
    [path] = folder.glob("broker-*.json")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_uid == os.geteuid()
    shared.stop()
    assert list(folder.glob("broker-*")) == []
