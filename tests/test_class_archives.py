"""Class archives save time and change nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.class_archives import archive_flags, archive_path, recorded_archive


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))


def test_there_are_no_flags_without_an_archive() -> None:
    assert archive_flags("spark", "4.3.0") == ()


def test_each_program_and_version_has_its_own() -> None:
    paths = {archive_path(*parts) for parts in (("a", "1"), ("a", "2"), ("b", "1"))}
    assert len(paths) == 3


def test_what_was_recorded_is_used_afterwards() -> None:
    with recorded_archive("spark", "1") as (record, _):
        Path(record.partition("=")[2]).write_bytes(b"classes")
    path = archive_path("spark", "1")
    assert archive_flags("spark", "1")[0] == f"-XX:SharedArchiveFile={path}"
    assert list(path.parent.iterdir()) == [path]


def test_a_run_that_fails_leaves_nothing() -> None:
    with pytest.raises(OSError), recorded_archive("spark", "1") as (record, _):
        Path(record.partition("=")[2]).write_bytes(b"half")
        raise OSError
    assert archive_flags("spark", "1") == ()


@pytest.mark.interop
def test_an_archive_that_does_not_fit_is_ignored_without_a_word() -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is not installed")
    archive_path("spark", "1").parent.mkdir(parents=True)
    archive_path("spark", "1").write_bytes(b"not an archive")
    done = subprocess.run(
        [java, *archive_flags("spark", "1"), "-XshowSettings:none", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "cds" not in done.stdout + done.stderr
