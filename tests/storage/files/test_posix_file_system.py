"""The real file system: links and devices, permissions, locks between processes, full disks."""

from __future__ import annotations

import errno
import gc
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_core.errors import InvalidArgument, StoreUnusable
from broker_core.storage.files.posix_file_system import (
    PosixFileSystem,
    fill_holes_with_zeros,
    path_components,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PROJECT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def fs(root: Path) -> Iterator[PosixFileSystem]:
    disk = PosixFileSystem(root)
    yield disk
    disk.close()


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _full_disk(directory: Path, size: str) -> Iterator[None]:
    directory.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _open_descriptors() -> int:
    # What earlier tests of this process left to the garbage collector goes now or never.
    gc.collect()
    return sum(1 for _ in Path("/dev/fd").iterdir())


# Names that lead elsewhere.


def _all_calls(fs: PosixFileSystem, path: str) -> list[Callable[[], object]]:
    return [
        lambda: fs.open(path),
        lambda: fs.open(path, writable=False),
        lambda: fs.create(path),
        lambda: fs.exists(path),
        lambda: fs.is_dir(path),
        lambda: fs.unlink(path),
        lambda: fs.make_dir(path),
        lambda: fs.rename(path, "elsewhere"),
        lambda: fs.rename("mine", path),
    ]


@pytest.mark.parametrize("element", [0, 1, 2])
def test_a_link_to_a_directory_is_refused_at_each_path_element(
    fs: PosixFileSystem, root: Path, tmp_path: Path, element: int
) -> None:
    outside = tmp_path / "outside"
    (outside / "b" / "c").mkdir(parents=True)
    for directory in (outside, outside / "b", outside / "b" / "c"):
        (directory / "file").write_bytes(b"theirs")
    names = ["a", "b", "c"]
    for depth in range(element):
        fs.make_dir("/".join(names[: depth + 1]))
    link = root.joinpath(*names[: element + 1])
    link.symlink_to(outside.joinpath(*names[1 : element + 1]), target_is_directory=True)
    fs.create("mine").close()
    link_path = "/".join(names[: element + 1])
    for call in _all_calls(fs, f"{link_path}/file"):
        with pytest.raises(StoreUnusable, match=f"{link_path}: is a symbolic link"):
            call()
    for refused in (fs.list, fs.sync_dir):
        with pytest.raises(StoreUnusable, match="symbolic link"):
            refused(link_path)
    assert fs.is_dir(link_path) is False
    assert fs.exists(link_path) is True
    with pytest.raises(FileExistsError):
        fs.make_dir(link_path)
    found = {str(path.relative_to(outside)) for path in outside.rglob("*")}
    assert found == {"file", "b", "b/file", "b/c", "b/c/file"}
    assert {path.read_bytes() for path in outside.rglob("file")} == {b"theirs"}


@pytest.mark.parametrize("writable", [True, False])
def test_a_link_in_place_of_a_file_is_refused(
    fs: PosixFileSystem, root: Path, tmp_path: Path, writable: bool
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (root / "link").symlink_to(outside)
    (root / "dangling").symlink_to(tmp_path / "nothing")
    for name in ("link", "dangling"):
        with pytest.raises(StoreUnusable, match=f"{name}: is a symbolic link"):
            fs.open(name, writable=writable)
        with pytest.raises(FileExistsError):
            fs.create(name)
    fs.unlink("link")
    assert outside.read_bytes() == b"theirs"
    assert not (tmp_path / "nothing").exists()


def test_renaming_onto_a_link_replaces_the_link(
    fs: PosixFileSystem, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (root / "table").symlink_to(outside)
    file = fs.create("table.tmp")
    file.write(0, b"ours")
    file.close()
    fs.rename("table.tmp", "table")
    assert not (root / "table").is_symlink()
    assert outside.read_bytes() == b"theirs"


def test_a_hard_link_is_refused(fs: PosixFileSystem, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (root / "name").hardlink_to(outside)
    before = _open_descriptors()
    with pytest.raises(StoreUnusable, match="name: has 2 hard links"):
        fs.open("name")
    assert _open_descriptors() == before


@pytest.mark.parametrize("writable", [True, False])
def test_a_fifo_is_refused_without_waiting(fs: PosixFileSystem, root: Path, writable: bool) -> None:
    os.mkfifo(root / "fifo")
    with pytest.raises(StoreUnusable, match="fifo: is not a regular file"):
        fs.open("fifo", writable=writable)


@needs_root
@pytest.mark.root
def test_a_device_is_refused(fs: PosixFileSystem, root: Path) -> None:
    try:
        os.mknod(root / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this machine makes no device nodes")
    with pytest.raises(StoreUnusable, match="null: is not a regular file"):
        fs.open("null")


def test_path_components() -> None:
    assert path_components("") == ()
    assert path_components("a/b.c/…") == ("a", "b.c", "…")
    with pytest.raises(InvalidArgument, match="'a//b'"):
        path_components("a//b")


# The root.


def test_a_new_root_and_all_in_it_belong_to_the_owner_only(root: Path) -> None:
    with _umask(0):
        fs = PosixFileSystem(root)
        fs.make_dir("d")
        fs.make_dir("d/e")
        fs.create("d/e/file").close()
        fs.close()
    assert [_mode(path) for path in (root, root / "d", root / "d/e")] == [0o700] * 3
    assert _mode(root / "d/e/file") == 0o600


def test_a_strict_umask_takes_nothing_from_the_owner(root: Path) -> None:
    with _umask(0o277):
        fs = PosixFileSystem(root)
        fs.make_dir("d")
        fs.create("d/file").close()
        fs.close()
    assert [_mode(path) for path in (root, root / "d")] == [0o700] * 2
    assert _mode(root / "d/file") == 0o600


def test_an_existing_root_keeps_its_content_and_mode(root: Path) -> None:
    root.mkdir(mode=0o750)
    (root / "file").write_bytes(b"x")
    fs = PosixFileSystem(str(root))
    assert fs.list("") == ["file"]
    fs.close()
    assert _mode(root) == 0o750


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_root_that_others_can_write_is_warned_about(
    root: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    root.mkdir()
    root.chmod(mode)
    with caplog.at_level(logging.WARNING):
        PosixFileSystem(root).close()
    assert f"can be written by others (mode {mode:o})" in caplog.text


def test_a_private_root_is_no_reason_to_warn(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    PosixFileSystem(root).close()
    PosixFileSystem(root).close()
    assert caplog.text == ""


def test_roots_that_cannot_be_a_store(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    before = _open_descriptors()
    with pytest.raises(StoreUnusable, match="file: cannot be opened as a directory"):
        PosixFileSystem(file)
    with pytest.raises(StoreUnusable, match="cannot be opened as a directory"):
        PosixFileSystem(file / "below")
    with pytest.raises(StoreUnusable, match="its parent directory does not exist"):
        PosixFileSystem(tmp_path / "missing" / "store")
    with pytest.raises(StoreUnusable, match="store: does not exist"):
        PosixFileSystem(root, create=False)
    with pytest.raises(StoreUnusable, match="null"):
        PosixFileSystem(f"{root}\0x")
    assert not root.exists()
    assert _open_descriptors() == before


def test_a_root_without_write_permission_is_refused(root: Path, tmp_path: Path) -> None:
    root.mkdir()
    root.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        # Root may write anywhere, so check as another user.
        # Every directory that pytest made: one more when tests run on several cores.
        for directory in (tmp_path, *tmp_path.parents):
            directory.chmod(0o755)
            if directory.name.startswith("pytest-of-"):
                break
        os.seteuid(65_534)
    try:
        with pytest.raises(StoreUnusable, match="store: cannot be written by this user"):
            PosixFileSystem(root)
    finally:
        if is_root:
            os.seteuid(0)
            for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
                directory.chmod(0o700)
    assert list(root.iterdir()) == []


def test_a_closed_file_system_refuses(root: Path) -> None:
    fs = PosixFileSystem(root)
    file = fs.create("kept")
    fs.close()
    fs.close()
    for call in (lambda: fs.list(""), lambda: fs.create("x"), lambda: fs.sync_dir(""), fs.usage):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()
    file.write(0, b"still open")
    file.close()


def test_no_descriptor_is_left_behind(root: Path) -> None:
    before = _open_descriptors()
    fs = PosixFileSystem(root)
    fs.make_dir("d")
    for _ in range(3):
        file = fs.create("d/file")
        file.allocate(0, 8_192)
        file.buffer()[:1] = b"x"
        file.sync()
        file.try_lock()
        file.close()
        with pytest.raises(FileExistsError):
            fs.create("d/file")
        with pytest.raises(FileNotFoundError):
            fs.open("d/missing")
        with pytest.raises(NotADirectoryError):
            fs.open("d/file/below")
        fs.sync_dir("d")
        fs.unlink("d/file")
    fs.close()
    assert _open_descriptors() == before


# Locks.

_CHILD = """
import sys
from broker_core.storage.files.posix_file_system import PosixFileSystem
fs = PosixFileSystem(sys.argv[1])
file = fs.open("lock")
print(file.try_lock(), flush=True)
sys.stdin.readline()
"""


@contextmanager
def _child(root: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(root)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def test_a_lock_excludes_another_process(fs: PosixFileSystem, root: Path) -> None:
    file = fs.create("lock")
    with _child(root) as (_, answer):
        assert answer == "True"
        assert file.try_lock() is False
    assert file.try_lock() is True
    with _child(root) as (_, answer):
        assert answer == "False"
    file.close()


def test_closing_a_second_descriptor_keeps_the_lock(fs: PosixFileSystem, root: Path) -> None:
    first = fs.create("lock")
    first.allocate(0, 16)
    assert first.try_lock() is True
    before = _open_descriptors()
    second = fs.open("lock")
    assert second.try_lock() is False
    assert bytes(second.buffer()[:1]) == b"\0"
    second.close()
    with _child(root) as (_, answer):
        assert answer == "False"
    first.close()
    assert _open_descriptors() == before - 1
    with _child(root) as (_, answer):
        assert answer == "True"


def test_a_forked_child_does_not_think_it_has_the_lock(fs: PosixFileSystem) -> None:
    file = fs.create("lock")
    assert file.try_lock() is True
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if fs.open("lock").try_lock() is False else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    file.close()


# Blocks.


def test_allocated_files_are_not_sparse(fs: PosixFileSystem, root: Path) -> None:
    file = fs.create("a")
    file.allocate(0, 1 << 20)
    file.close()
    assert (root / "a").stat().st_blocks * 512 >= 1 << 20


def test_zeros_replace_holes_where_fallocate_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w+b") as file:
        file.truncate(300_000)
        file.seek(100_001)
        file.write(b"data")
        file.flush()
        fill_holes_with_zeros(file.fileno(), 5_000, 2_500_000)
        fill_holes_with_zeros(file.fileno(), 2_600_000, 2_600_010)
        file.seek(0)
        content = file.read()
    expected = bytearray(2_600_010)
    expected[100_001:100_005] = b"data"
    assert content == expected
    block = os.statvfs(tmp_path).f_bsize
    assert path.stat().st_blocks * 512 >= 2_600_010 - 5_000 - block


@needs_root
@pytest.mark.root
def test_a_full_disk_refuses_to_allocate_and_kills_no_process(tmp_path: Path) -> None:
    with _full_disk(tmp_path / "small", "1m"):
        fs = PosixFileSystem(tmp_path / "small" / "store")
        file = fs.create("fits")
        file.allocate(0, 500_000)
        file.buffer()[:] = b"x" * 500_000
        too_large = fs.create("too_large")
        with pytest.raises(OSError, match="too_large") as error:
            too_large.allocate(0, 2_000_000)
        assert error.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="too_large") as error:
            too_large.write(0, bytes(2_000_000))
        assert error.value.errno == errno.ENOSPC
        too_large.close()
        fs.unlink("too_large")
        # Room again, and what was there is whole.
        assert fs.usage().usable > 400_000
        file.sync()
        file.close()
        file = fs.open("fits")
        assert file.read(0, 500_001) == b"x" * 500_000
        file.close()
        fs.close()


@needs_root
@pytest.mark.root
def test_zeros_on_a_full_disk_give_the_space_back(tmp_path: Path) -> None:
    with _full_disk(tmp_path / "small", "1m"):
        path = tmp_path / "small" / "file"
        with path.open("w+b") as file:
            file.write(b"kept")
            file.flush()
            with pytest.raises(OSError, match="space") as error:
                fill_holes_with_zeros(file.fileno(), 0, 3_000_000)
            assert error.value.errno == errno.ENOSPC
        assert path.read_bytes() == b"kept"


@needs_root
@pytest.mark.root
def test_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    with _full_disk(tmp_path / "small", "1m"):
        (tmp_path / "small" / "store").mkdir()
        target = str(tmp_path / "small")
        done = subprocess.run(["mount", "-o", "remount,ro", target], check=False)
        if done.returncode != 0:
            pytest.skip("cannot make a disk read-only")
        with pytest.raises(StoreUnusable, match="store: cannot be written"):
            PosixFileSystem(tmp_path / "small" / "store")
        with pytest.raises(StoreUnusable, match="Read-only"):
            PosixFileSystem(tmp_path / "small" / "new")


# Facts.


def test_usage_is_that_of_the_partition(fs: PosixFileSystem, root: Path) -> None:
    status = os.statvfs(root)
    usage = fs.usage()
    total = status.f_blocks * status.f_frsize
    assert 0 < usage.used < total
    assert 0 < usage.usable <= total


def test_the_boot_id_is_that_of_the_kernel(fs: PosixFileSystem, tmp_path: Path) -> None:
    other = PosixFileSystem(tmp_path / "other")
    kernel = Path("/proc/sys/kernel/random/boot_id")
    if not kernel.exists():
        pytest.skip("no boot id here")
    assert fs.boot_id() == other.boot_id() == kernel.read_text().strip()
    other.close()


def test_errors_name_the_whole_path(fs: PosixFileSystem, root: Path) -> None:
    fs.make_dir("d")
    file = fs.create("d/file")
    with pytest.raises(OSError, match="d/file") as error:
        file.write(-1, b"x")
    assert error.value.filename == f"{root}/d/file"
    file.close()
    with pytest.raises(FileNotFoundError) as missing:
        fs.unlink("d/missing")
    assert missing.value.filename == f"{root}/d/missing"
