"""Directories that are no store, or not one that we may use: a typed error says what and why, and
nothing is written.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_core.errors import RmqError, StoreFormatUnsupported, StoreUnusable
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.crash.small_disks import read_only, why_not
from tests.crash.store_process import SMALL, make_config
from tests.crash.test_real_second_owner import snapshot

pytestmark = pytest.mark.crash

CONFIG = make_config(SMALL)
LOG_FILE = "commitlog/00000000000000000000"


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A closed store with one message."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        assert store.put_now(Message("orders", b"body")).ok
    return tmp_path / "store"


def newer_format(path: Path) -> None:
    """Both slots of the state say version 2."""
    state = path / "store_state"
    content = state.read_bytes()
    slots = []
    for start in (0, 512):
        head = bytearray(content[start : start + 96])
        struct.pack_into(">I", head, 4, 2)
        slots.append((bytes(head) + struct.pack(">I", zlib.crc32(head))).ljust(512, b"\0"))
    state.write_bytes(b"".join(slots))


def replace_by_link(path: Path) -> None:
    """A log file becomes a link to a file outside."""
    outside = path.parent / "outside"
    (path / LOG_FILE).rename(outside)
    (path / LOG_FILE).symlink_to(outside)


def replace_by_directory(path: Path) -> None:
    """A log file becomes a directory."""
    (path / LOG_FILE).unlink()
    (path / LOG_FILE).mkdir()


def replace_by_fifo(path: Path) -> None:
    """A log file becomes a FIFO, which would block an open."""
    (path / LOG_FILE).unlink()
    os.mkfifo(path / LOG_FILE)


SPOILERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "foreign file in the log": (
        lambda path: (path / "commitlog" / "notes.txt").write_text("mine"),
        r"commitlog/notes\.txt is not a commit-log file",
    ),
    "editor backup in the log": (
        lambda path: (path / f"{LOG_FILE}~").write_bytes(b""),
        "is not a commit-log file",
    ),
    "newer format": (newer_format, "format version 2.*newer release"),
    "log file of another size": (
        lambda path: os.truncate(path / LOG_FILE, 2 * CONFIG.commit_log_file_size),
        f"commit_log_file_size={CONFIG.commit_log_file_size}",
    ),
    "log file at an odd position": (
        lambda path: (path / LOG_FILE).rename(path / "commitlog" / f"{1000:020d}"),
        "multiples of 262144",
    ),
    "link in the log": (replace_by_link, "symbolic link"),
    "FIFO in the log": (replace_by_fifo, "not a regular file"),
    "directory in the log": (replace_by_directory, LOG_FILE),
}


@pytest.mark.parametrize("name", SPOILERS)
def test_a_spoiled_directory_is_refused_and_left_as_it_is(store_path: Path, name: str) -> None:
    spoil, pattern = SPOILERS[name]
    spoil(store_path)
    before = snapshot(store_path)
    names = sorted(str(path) for path in store_path.rglob("*"))
    with pytest.raises(RmqError, match=pattern) as caught:
        MessageStore.open(store_path, CONFIG)
    assert isinstance(caught.value, StoreUnusable)
    assert isinstance(caught.value, StoreFormatUnsupported) == (name == "newer format")
    assert snapshot(store_path) == before
    assert sorted(str(path) for path in store_path.rglob("*")) == names


def test_the_other_file_size_is_refused_in_both_directions(store_path: Path) -> None:
    before = snapshot(store_path)
    for size in (CONFIG.commit_log_file_size // 2, CONFIG.commit_log_file_size * 2):
        other = make_config({**SMALL, "commit_log_file_size": size})
        with pytest.raises(RmqError, match="commit_log_file_size"):
            MessageStore.open(store_path, other)
        assert snapshot(store_path) == before
    with MessageStore.open(store_path, CONFIG) as store:
        assert store.offsets("orders", 0) == (0, 1)


def test_the_root_is_a_file_or_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"not a store")
    with pytest.raises(StoreUnusable, match="cannot be opened as a directory"):
        MessageStore.open(file, CONFIG)
    assert file.read_bytes() == b"not a store"
    with pytest.raises(StoreUnusable, match="parent directory does not exist"):
        MessageStore.open(tmp_path / "no" / "such", CONFIG)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "staging"])
def test_a_file_where_a_directory_must_be(store_path: Path, name: str) -> None:
    directory = store_path / name
    if directory.exists():
        directory.rename(store_path.parent / "moved")
    directory.write_bytes(b"in the way")
    before = snapshot(store_path)
    with pytest.raises(StoreUnusable, match=name):
        MessageStore.open(store_path, CONFIG)
    assert snapshot(store_path) == before


@pytest.mark.root
@pytest.mark.parametrize("new", [True, False], ids=["empty", "store"])
def test_a_read_only_directory_is_refused(store_path: Path, tmp_path: Path, new: bool) -> None:
    reason = why_not(tmp_path)
    if reason:
        pytest.skip(f"a directory that root cannot write to takes a mount: {reason}")
    path = tmp_path / "new" if new else store_path
    path.mkdir(exist_ok=True)
    before = snapshot(path)
    with read_only(path), pytest.raises(StoreUnusable, match="cannot be written"):
        MessageStore.open(path, CONFIG)
    assert snapshot(path) == before
    with MessageStore.open(path, CONFIG) as store:
        assert store.put_now(Message("orders", b"now it works")).ok
