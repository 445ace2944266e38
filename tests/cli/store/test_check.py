"""`rmq store check`: the verdict as text and as JSON, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_core.cli.main import main
from broker_core.config import StoreConfig
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", StoreConfig(commit_log_file_size=1 << 16)) as store:
        for number in range(3):
            store.put_now(Message("T", b"%d" % number))
    return tmp_path / "s"


def test_a_clean_store(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "last stop:  clean" in shown
    assert "cut:        nothing" in shown
    assert "rebuilt:    nothing" in shown
    assert main(["store", "check", str(root), "-J"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["is_sound"], found["cut_bytes"], found["damage"]) == (True, 0, "")
    assert found["verdict"]["trusted"] is True


def test_a_torn_tail(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "abort").touch()
    log = root / "commitlog" / ("0" * 20)
    content = bytearray(log.read_bytes())
    end = len(content.rstrip(b"\0"))
    content[end + 40 : end + 44] = b"torn"
    log.write_bytes(content)
    assert main(["store", "check", str(root)]) == 1
    shown = capsys.readouterr().out
    assert "last stop:  not clean" in shown
    assert " bytes from " in shown
    assert log.read_bytes() == content, "nothing is changed"
    assert main(["store", "check", str(root), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["cut_bytes"] > 0


def test_damage(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "abort").touch()
    (root / "dispatch_checkpoint").unlink()
    log = root / "commitlog" / ("0" * 20)
    content = bytearray(log.read_bytes())
    content[70] ^= 0xFF
    log.write_bytes(content)
    assert main(["store", "check", str(root)]) == 1
    assert capsys.readouterr().out.startswith("damaged:    commitlog/")


def test_a_store_in_use(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MessageStore.open(root, StoreConfig(commit_log_file_size=1 << 16)):
        assert main(["store", "check", str(root)]) == 1
    assert "another process has this store open" in capsys.readouterr().err


def test_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "check", str(tmp_path)]) == 2
    assert "holds no store" in capsys.readouterr().err
    assert main(["store", "check", str(tmp_path / "missing")]) == 2
