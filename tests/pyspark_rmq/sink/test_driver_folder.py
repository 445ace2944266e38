"""The folder on the driver's machine is of one user only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pyspark_rmq.sink.driver_folder import driver_folder


def test_the_folder_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert driver_folder(create=False) is None
    folder = driver_folder(create=True)
    assert folder == tmp_path / f"pyspark-rmq-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert driver_folder(create=True) == driver_folder(create=False) == folder


@pytest.mark.parametrize("create", [True, False])
def test_a_link_is_not_followed(
    create: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"pyspark-rmq-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert driver_folder(create=create) is None


def test_a_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = driver_folder(create=True)
    assert folder is not None
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    folder.rename(tmp_path / f"pyspark-rmq-{user + 1}")
    assert driver_folder(create=False) is None
