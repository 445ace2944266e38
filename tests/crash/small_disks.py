"""Real file systems that are small, or whose medium fails: tmpfs, and ext4 on a loop device.

Everything mounted or attached here is undone when the `with` block ends, also after an error.
Needs root; `why_not` says what is missing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20


def _run(*words: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, text=True, timeout=300
    )
    return done.stdout.strip()


def why_not(scratch: Path, *, loop: bool = False) -> str:
    """What keeps a test from mounting a small disk here; empty when nothing does."""
    if os.geteuid() != 0:
        return "not root"
    tools = ("mount", "umount", *(("losetup", "mkfs.ext4") if loop else ()))
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)}"
    try:
        with small_tmpfs(scratch / "probe", 16 * MIB) as probe:
            if loop:
                image = probe / "image"
                make_image(image, 12 * MIB, journal=False)
                with loop_mount(image, scratch / "probe-loop"):
                    pass
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot mount: {getattr(error, 'stderr', None) or error}"
    return ""


@contextlib.contextmanager
def small_tmpfs(path: Path, size: int) -> Iterator[Path]:
    """A tmpfs of `size` bytes."""
    path.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "rmq-test", path)
    try:
        yield path
    finally:
        _run("umount", "-l", path)


def set_tmpfs_size(path: Path, size: int) -> None:
    """Make room, or take it."""
    _run("mount", "-o", f"remount,size={size}", path)


def make_image(image: Path, size: int, *, journal: bool) -> None:
    """A sparse file with an empty ext4 in it."""
    with image.open("wb") as file:
        file.truncate(size)
    features = "^resize_inode" + ("" if journal else ",^has_journal")
    _run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", "-O", features, image)


@contextlib.contextmanager
def loop_mount(image: Path, path: Path) -> Iterator[Path]:
    """The image, mounted."""
    path.mkdir(exist_ok=True)
    device = _run("losetup", "--find", "--show", image)
    try:
        # A loop device that gets half of a request onto its file says that it got all of it. A
        # request of one page is written or fails.
        Path("/sys/block", Path(device).name, "queue/max_sectors_kb").write_text("4")
        _run("mount", "-t", "ext4", device, path)
        try:
            yield path
        finally:
            _run("umount", path)
    finally:
        _run("losetup", "--detach", device)


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A directory that is read-only even for root: a bind mount over itself."""
    _run("mount", "--bind", path, path)
    try:
        _run("mount", "-o", "remount,bind,ro", path)
        yield
    finally:
        _run("umount", path)


class Ballast:
    """Fills a file system to the last byte, and gives the space back."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fill(self, leaving: int = 0) -> int:
        """Take everything but `leaving` bytes; returns how much was taken."""
        with self._path.open("ab") as file:
            while True:
                usage = os.statvfs(self._path.parent)
                size = max(usage.f_bavail * usage.f_frsize - leaving, 0)
                try:
                    if size:
                        os.posix_fallocate(file.fileno(), file.tell(), size)
                except OSError as error:
                    # A store that prepares its next file took some of it in between.
                    if error.errno != errno.ENOSPC:
                        raise
                else:
                    return size

    def free(self) -> None:
        """Give it all back."""
        self._path.unlink(missing_ok=True)
