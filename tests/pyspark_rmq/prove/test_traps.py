"""Traps kill their victim."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rmq.prove.traps import (
    FOLDER_VARIABLE,
    PROMOTION,
    SLAVE,
    Trap,
    arm,
    pass_point,
)


def test_a_trap_kills_its_own_victim_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that read the trap of another one does not take the next trap in its place."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    arm(tmp_path, Trap("write_middle", SLAVE))
    read_text = Path.read_text

    def replaced_after_reading(path: Path) -> str:
        text = read_text(path)
        if path.name == "trap.json":
            path.unlink()
            arm(tmp_path, Trap("commit_after", PROMOTION))
        return text

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", replaced_after_reading)
        pass_point("write_middle")
    assert read_text(tmp_path / "trap.json") == '["commit_after", "promotion"]'
