"""Secrets are read from private files and never shown."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from broker_core.access.credentials import Credentials, read_secret_file
from broker_core.errors import InvalidConfig


def test_secret_files(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text("  the secret \nanother line\n")
    assert read_secret_file(str(path), "--secret-key-file") == "the secret"
    path.write_text("\n")
    with pytest.raises(InvalidConfig, match="first line"):
        read_secret_file(str(path), "--secret-key-file")
    path.chmod(0o644)
    with pytest.raises(InvalidConfig, match="--secret-key-file"):
        read_secret_file(str(path), "--secret-key-file")


def test_credentials_show_nothing() -> None:
    found = Credentials("key", "canary-secret", "canary-token")
    assert "canary" not in repr(found) + str(found)
    with pytest.raises(TypeError, match="not pickled"):
        copy.deepcopy(found)
    with pytest.raises(InvalidConfig) as raised:
        Credentials("key", "canar")
    assert "canar" not in str(raised.value)
    with pytest.raises(InvalidConfig, match="access_key"):
        Credentials("", "canary-secret")
