"""The contract of `file_system.py`, for the real and for the simulated disk."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.errors import InvalidArgument
from broker_core.storage.files.file_system import FileSystem
from broker_core.storage.files.posix_file_system import PosixFileSystem
from tests.fakes.simulated_disk import SimulatedDisk


@pytest.fixture(params=["posix", "simulated"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileSystem]:
    disk = PosixFileSystem(tmp_path / "store") if request.param == "posix" else SimulatedDisk()
    yield disk
    disk.close()


def _put(fs: FileSystem, path: str, content: bytes = b"") -> None:
    file = fs.create(path)
    if content:
        file.write(0, content)
    file.close()


def _get(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path, writable=False)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


def test_a_new_file_is_empty_and_its_name_is_taken(fs: FileSystem) -> None:
    file = fs.create("a")
    assert (file.path, file.size, file.read(0, 10)) == ("a", 0, b"")
    file.close()
    with pytest.raises(FileExistsError):
        fs.create("a")


def test_write_extends_and_read_is_short_at_the_end_only(fs: FileSystem) -> None:
    file = fs.create("a")
    file.write(0, b"hello")
    file.write(3, memoryview(b"XYZ"))
    file.write(10, bytearray(b"far"))
    file.write(20, b"")
    assert file.size == 13
    assert file.read(0, 100) == b"helXYZ\0\0\0\0far"
    assert file.read(10, 2) == b"fa"
    assert file.read(13, 5) == file.read(99, 5) == b""
    file.close()
    assert _get(fs, "a") == b"helXYZ\0\0\0\0far"


def test_allocate_keeps_bytes_and_adds_zeros(fs: FileSystem) -> None:
    file = fs.create("a")
    file.write(0, b"keep")
    file.allocate(2, 9_000)
    assert file.size == 9_002
    assert file.read(0, 9_002) == b"keep".ljust(9_002, b"\0")
    file.allocate(0, 100)
    file.allocate(0, 0)
    assert file.size == 9_002
    with pytest.raises(InvalidArgument):
        file.allocate(-1, 5)
    with pytest.raises(InvalidArgument):
        file.allocate(0, -5)
    file.close()


def test_resize_cuts_and_extends_with_zeros(fs: FileSystem) -> None:
    file = fs.create("a")
    file.write(0, b"0123456789")
    file.resize(4)
    assert file.read(0, 99) == b"0123"
    file.resize(6)
    assert file.read(0, 99) == b"0123\0\0"
    file.close()


def test_map_and_calls_see_the_same_bytes(fs: FileSystem) -> None:
    file = fs.create("a")
    file.allocate(0, 8_192)
    buffer = file.buffer()
    assert len(buffer) == 8_192
    assert not buffer.readonly
    buffer[4_094:4_098] = b"page"
    file.wrote(4_094, 4_098)
    assert file.read(4_094, 4) == b"page"
    file.write(0, b"call")
    assert bytes(file.buffer()[:4]) == b"call"
    file.sync()
    file.close()
    assert _get(fs, "a")[4_094:4_098] == b"page"


def test_a_released_map_can_be_asked_for_again(fs: FileSystem) -> None:
    file = fs.create("a")
    file.allocate(0, 512)
    file.buffer()[:2] = b"ab"
    file.buffer().release()
    assert bytes(file.buffer()[:2]) == b"ab"
    file.close()


def test_an_empty_file_has_an_empty_map(fs: FileSystem) -> None:
    file = fs.create("a")
    assert len(file.buffer()) == 0
    file.resize(3)
    assert len(file.buffer()) == 3
    file.close()


def test_close_waits_for_the_last_slice(fs: FileSystem) -> None:
    file = fs.create("a")
    file.allocate(0, 4_096)
    part = file.buffer()[10:20]
    with pytest.raises(BufferError):
        file.close()
    part[:] = b"0123456789"
    assert file.read(10, 10) == b"0123456789"
    assert bytes(file.buffer()[10:12]) == b"01"
    part.release()
    file.close()
    file.close()


def test_a_mapped_file_keeps_its_length(fs: FileSystem) -> None:
    file = fs.create("a")
    file.allocate(0, 4_096)
    file.buffer()
    with pytest.raises(BufferError):
        file.resize(10)
    with pytest.raises(BufferError):
        file.allocate(4_000, 100)
    with pytest.raises(BufferError):
        file.write(4_095, b"ab")
    file.allocate(0, 4_096)
    assert file.size == 4_096
    file.close()


def test_a_file_opened_for_reading_refuses_changes(fs: FileSystem) -> None:
    _put(fs, "a", b"content")
    file = fs.open("a", writable=False)
    assert bytes(file.buffer()) == b"content"
    assert file.buffer().readonly
    with pytest.raises(OSError, match="a") as write_error:
        file.write(0, b"x")
    assert write_error.value.errno == errno.EBADF
    file.close()
    reader = fs.open("a", writable=False)
    with pytest.raises(OSError, match="a") as resize_error:
        reader.resize(1)
    assert resize_error.value.errno == errno.EINVAL
    reader.close()
    assert _get(fs, "a") == b"content"


def test_a_closed_file_refuses_everything(fs: FileSystem) -> None:
    file = fs.create("a")
    file.allocate(0, 16)
    file.close()
    for call in (
        lambda: file.size,
        file.buffer,
        lambda: file.read(0, 1),
        lambda: file.read_into(0, memoryview(bytearray(1))),
        lambda: file.write(0, b"x"),
        lambda: file.resize(1),
        file.sync,
        file.drop_cache,
        lambda: file.release(0, 1),
        file.try_lock,
        file.modified_ms,
        file.fingerprint,
    ):
        with pytest.raises(OSError, match="a") as error:
            call()
        assert error.value.errno == errno.EBADF


def test_open_wants_an_existing_file(fs: FileSystem) -> None:
    fs.make_dir("d")
    _put(fs, "f")
    with pytest.raises(FileNotFoundError):
        fs.open("missing")
    with pytest.raises(FileNotFoundError):
        fs.open("missing/f")
    with pytest.raises(IsADirectoryError):
        fs.open("d")
    with pytest.raises(NotADirectoryError):
        fs.open("f/g")
    with pytest.raises(FileNotFoundError):
        fs.create("missing/f")


def test_directories(fs: FileSystem) -> None:
    assert fs.make_dir("d") is True
    assert fs.make_dir("d") is False
    assert fs.make_dir("") is False
    assert fs.make_dir("d/e") is True
    _put(fs, "d/b")
    _put(fs, "d/a")
    assert fs.list("d") == ["a", "b", "e"]
    assert fs.list("") == ["d"]
    assert fs.list("d/e") == fs.list("missing") == fs.list("missing/below") == []
    assert (fs.is_dir("d"), fs.is_dir("d/a"), fs.is_dir("x"), fs.is_dir("")) == (1, 0, 0, 1)
    assert (fs.exists("d/a"), fs.exists("d"), fs.exists("x/y"), fs.exists("d/a/x")) == (1, 1, 0, 0)
    assert fs.exists("") is True
    for path in ("", "d", "d/e"):
        fs.sync_dir(path)
    _put(fs, "d/e/again")
    assert fs.list("d/e") == ["again"]


def test_directory_errors(fs: FileSystem) -> None:
    fs.make_dir("d")
    _put(fs, "d/f")
    with pytest.raises(FileNotFoundError):
        fs.make_dir("missing/below")
    with pytest.raises(FileExistsError):
        fs.make_dir("d/f")
    with pytest.raises(NotADirectoryError):
        fs.list("d/f")
    with pytest.raises(NotADirectoryError):
        fs.sync_dir("d/f")
    with pytest.raises(FileNotFoundError):
        fs.sync_dir("missing")


def test_rename_replaces_the_target(fs: FileSystem) -> None:
    fs.make_dir("d")
    _put(fs, "new", b"new")
    _put(fs, "d/old", b"old")
    fs.rename("new", "d/old")
    assert _get(fs, "d/old") == b"new"
    assert not fs.exists("new")
    fs.rename("d/old", "d/old")
    fs.rename("d", "moved")
    assert _get(fs, "moved/old") == b"new"
    assert fs.list("d") == []
    fs.make_dir("empty")
    fs.rename("moved", "empty")
    assert fs.list("empty") == ["old"]


def test_rename_errors(fs: FileSystem) -> None:
    fs.make_dir("d")
    fs.make_dir("full")
    _put(fs, "full/f")
    _put(fs, "f")
    with pytest.raises(FileNotFoundError):
        fs.rename("missing", "f")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fs.rename("f", "nowhere/f")
    with pytest.raises(IsADirectoryError):
        fs.rename("f", "d")
    with pytest.raises(NotADirectoryError):
        fs.rename("d", "f")
    with pytest.raises(OSError, match="not empty") as error:
        fs.rename("d", "full")
    assert error.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError, match="Invalid") as error:
        fs.rename("d", "d/below")
    assert error.value.errno == errno.EINVAL


def test_an_open_file_outlives_its_name(fs: FileSystem) -> None:
    file = fs.create("a")
    file.allocate(0, 512)
    buffer = file.buffer()
    fs.rename("a", "b")
    buffer[:1] = b"1"
    file.wrote(0, 1)
    assert _get(fs, "b")[:1] == b"1"
    fs.unlink("b")
    assert not fs.exists("b")
    buffer[1:2] = b"2"
    file.wrote(1, 2)
    assert file.read(0, 2) == b"12"
    file.sync()
    file.close()


def test_unlink_errors(fs: FileSystem) -> None:
    fs.make_dir("d")
    with pytest.raises(FileNotFoundError):
        fs.unlink("missing")
    with pytest.raises(IsADirectoryError):
        fs.unlink("d")


def test_a_lock_excludes_every_other_open_file(fs: FileSystem) -> None:
    first, second = fs.create("lock"), fs.open("lock")
    assert first.try_lock() is True
    assert first.try_lock() is True
    assert second.try_lock() is False
    second.close()
    third = fs.open("lock")
    assert third.try_lock() is False
    first.close()
    assert third.try_lock() is True
    third.close()


@pytest.mark.parametrize(
    "path", ["..", "a/../b", "/a", "a/", "a//b", ".", "a/./b", "a\0b", "../../etc/passwd", 7]
)
def test_paths_that_are_not_names_below_the_root(fs: FileSystem, path: str) -> None:
    for call in (fs.create, fs.open, fs.exists, fs.is_dir, fs.list, fs.make_dir):
        with pytest.raises(InvalidArgument):
            call(path)
    for call in (fs.sync_dir, fs.unlink):
        with pytest.raises(InvalidArgument):
            call(path)
    with pytest.raises(InvalidArgument):
        fs.rename(path, "x")
    assert fs.list("") == []


def test_the_root_is_not_a_name(fs: FileSystem) -> None:
    for call in (fs.create, fs.unlink):
        with pytest.raises(InvalidArgument):
            call("")
    with pytest.raises(InvalidArgument):
        fs.rename("", "x")


def test_too_long_names(fs: FileSystem) -> None:
    for name in ("x" * 256, "é" * 128):
        with pytest.raises(OSError, match=name) as error:
            fs.create(name)
        assert error.value.errno == errno.ENAMETOOLONG
    _put(fs, "é" * 127)


def test_facts(fs: FileSystem) -> None:
    usage = fs.usage()
    assert usage.used >= 0
    assert usage.usable > 0
    assert fs.boot_id()
    assert fs.boot_id() == fs.boot_id()
    file = fs.create("a")
    file.write(0, b"x")
    assert file.modified_ms() > 1_600_000_000_000
    file.drop_cache()
    assert file.read(0, 1) == b"x"
    file.close()


def test_released_bytes_are_still_there(fs: FileSystem) -> None:
    file = fs.create("a")
    file.allocate(0, 64 << 10)
    view = file.buffer()
    view[:] = bytes(range(256)) * 256
    file.wrote(0, 64 << 10)
    file.release(0, 64 << 10)
    file.write(5_000, b"new")
    file.release(4_500, 50_000)
    file.sync()
    file.release(4_500, 50_000)
    assert bytes(view[5_000:5_003]) == file.read(5_000, 3) == b"new"
    assert bytes(view[8_192:]) == bytes(range(256)) * 224
    file.close()


def _random_call(fs: FileSystem, rng: random.Random) -> object:
    """One call with arguments that often collide; what it gave or which error it raised."""
    paths = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/x"]
    path, other, number = rng.choice(paths), rng.choice(paths), rng.randrange(2_000)
    calls = "create write allocate resize map read make_dir make_dir list"
    call = rng.choice([*calls.split(), "rename", "rename", "unlink", "exists"])
    try:
        if call == "create":
            return fs.create(path).close()
        if call == "rename":
            return fs.rename(path, other)
        if call in {"make_dir", "list", "unlink", "exists"}:
            return getattr(fs, call)(path)
        file = fs.open(path)
    except OSError as error:
        return error.errno
    if call == "write":
        file.write(number, bytes([number % 256]) * 700)
    elif call == "allocate":
        file.allocate(number, 1 + number)
    elif call == "resize":
        file.resize(number)
    elif call == "map" and file.size > number:
        # Only into allocated blocks, as the contract has it.
        file.allocate(0, file.size)
        file.buffer()[number : number + 1] = b"m"
        file.wrote(number, number + 1)
    content = file.read(0, file.size + 1)
    file.close()
    return content


@pytest.mark.parametrize("seed", range(10))
def test_both_answer_the_same_to_any_sequence(tmp_path: Path, seed: int) -> None:
    real, simulated = PosixFileSystem(tmp_path / "store"), SimulatedDisk()
    answers, expected = random.Random(seed), random.Random(seed)
    for step in range(400):
        assert _random_call(simulated, expected) == _random_call(real, answers), f"step {step}"
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    found = {str(path.relative_to(tmp_path / "store")): path.read_bytes() for path in files}
    assert found == simulated.tree()
    real.close()
