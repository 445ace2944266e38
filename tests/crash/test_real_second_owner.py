"""F26: two owners of one directory, as processes and as objects of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.errors import StoreLocked
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.crash.store_process import SMALL, Promises, StoreProcess, make_config, missing_or_wrong

pytestmark = pytest.mark.crash


def snapshot(directory: Path) -> dict[str, bytes]:
    """Every file and its bytes.

    Not of `lock`: a POSIX lock belongs to the process, which loses it when it closes the file.
    """
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_second_process_is_refused_and_the_first_continues(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    first, second = Promises(), Promises()
    with StoreProcess(directory, first) as owner:
        assert owner.wait_for("open")[:1] == ["open"]
        assert owner.command("put 0 50")
        with StoreProcess(directory, second) as other:
            answer = other.wait_for("open", "refused")
            status, _ = other.finish()
        assert answer[:2] == ["refused", "StoreLocked"]
        assert "another process" in " ".join(answer)
        assert status == 3
        with pytest.raises(StoreLocked, match="another process"):
            MessageStore.open(directory, make_config(SMALL))
        assert owner.command("put 50 50")
        owner.send("close")
        assert owner.finish()[0] == 0
    with MessageStore.open(directory, make_config(SMALL)) as store:
        assert store.recovery.clean
        assert missing_or_wrong(store, first) == ([], 100)


def test_a_second_object_is_refused_writes_nothing_and_does_not_break_the_lock(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "store"
    with MessageStore.open(directory, make_config(SMALL)) as store:
        assert store.put_now(Message("orders", b"first")).ok
        before = snapshot(directory)
        for _ in range(3):
            # Closing any descriptor of a locked file gives back a POSIX lock; not here.
            with pytest.raises(StoreLocked):
                MessageStore.open(directory, make_config(SMALL))
        assert snapshot(directory) == before
        with StoreProcess(directory, Promises()) as other:
            assert other.wait_for("open", "refused")[:2] == ["refused", "StoreLocked"]
        assert store.put_now(Message("orders", b"second")).ok
    with MessageStore.open(directory, make_config(SMALL)) as store:
        assert store.offsets("orders", 0) == (0, 2)


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    promises = Promises()
    with StoreProcess(directory, promises) as owner:
        assert owner.wait_for("open")[:1] == ["open"]
        assert owner.command("put 0 20")
        owner.kill()
        owner.finish()
    with MessageStore.open(directory, make_config(SMALL)) as store:
        assert missing_or_wrong(store, promises) == ([], 20)
