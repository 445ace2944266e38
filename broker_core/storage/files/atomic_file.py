"""Replaces small files atomically: a crash leaves the old content or the new."""

from __future__ import annotations

from broker_core.storage.files.file_system import FileSystem


def replace_file(file_system: FileSystem, path: str, data: bytes) -> None:
    """Write a temporary file, sync it, rename it, sync the directory."""
    aside = f"{path}.tmp"
    _write_aside(file_system, aside, data)
    file_system.rename(aside, path)
    file_system.sync_dir(path.rpartition("/")[0])


def replace_file_keeping_backup(file_system: FileSystem, path: str, data: bytes) -> None:
    """`replace_file` that keeps the previous content as `{path}.bak`, which RocketMQ reads too."""
    aside = f"{path}.tmp"
    directory = path.rpartition("/")[0]
    _write_aside(file_system, aside, data)
    if file_system.exists(path):
        file_system.rename(path, f"{path}.bak")
        # Otherwise the second rename may reach the disk before the first one.
        file_system.sync_dir(directory)
    file_system.rename(aside, path)
    file_system.sync_dir(directory)


def read_file(file_system: FileSystem, path: str) -> bytes | None:
    """The content, None when there is no such file."""
    if not file_system.exists(path):
        return None
    file = file_system.open(path, writable=False)
    try:
        return file.read(0, file.size)
    finally:
        file.close()


def _write_aside(file_system: FileSystem, path: str, data: bytes) -> None:
    if file_system.exists(path):
        file_system.unlink(path)
    file = file_system.create(path)
    try:
        file.write(0, data)
        file.sync()
    finally:
        file.close()
