"""Removes a directory that this package created, and everything in it."""

from __future__ import annotations

from pathlib import Path


def remove_tree(top: Path) -> None:
    """Remove `top`; what cannot be removed stays. Links are removed, not followed."""
    try:
        entries = list(top.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            _unlink(entry)
    try:
        top.rmdir()
    except OSError:
        return


def _unlink(entry: Path) -> None:
    try:
        entry.unlink()
    except OSError:
        return


def remove_node(top: Path) -> None:
    """Remove the directory of one of several processes, and with the last one its parent."""
    remove_tree(top)
    try:
        top.parent.rmdir()
    except OSError:
        return
