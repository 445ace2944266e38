"""The access file on disk: rejected unless private, reloaded on change, the old one kept if
invalid."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from broker_core.access.account_file import AccountFile, read_accounts
from broker_core.access.accounts import AccountTable
from broker_core.errors import InvalidConfig
from tests.access.access_files import ADMIN, BROKER, READER, write_access_file


def test_a_private_file_is_read(tmp_path: Path) -> None:
    table = read_accounts(str(write_access_file(tmp_path / "a.json", READER, ADMIN)))
    assert sorted(table.accounts) == ["admin-key", "reader-key"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_access_file(tmp_path / "a.json", READER)
    path.chmod(mode)
    with pytest.raises(InvalidConfig, match="chmod 600") as raised:
        read_accounts(str(path))
    assert "accessFile" in str(raised.value)
    assert "canary" not in str(raised.value)


def test_accounts_of_brokers_without_a_name_are_named_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_access_file(tmp_path / "a.json", READER, BROKER)
    file = AccountFile(str(path))
    file.load()
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "broker-key" in warning and "brokerName" in warning
    caplog.clear()
    write_access_file(path, READER, {**BROKER, "brokerName": "broker-a"})
    assert asyncio.run(file.check())
    assert not [each for each in caplog.records if each.levelno == logging.WARNING]


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "absent", tmp_path / "pipe", "a\0b", "/dev/null"):
        with pytest.raises(InvalidConfig, match="accessFile"):
            read_accounts(str(path))


def test_errors_do_not_quote_the_file(tmp_path: Path) -> None:
    path = write_access_file(tmp_path / "a.json", READER)
    path.write_text(path.read_text()[:-5])
    with pytest.raises(InvalidConfig) as raised:
        read_accounts(str(path))
    assert "canary" not in str(raised.value)
    assert raised.value.__cause__ is None
    path.write_text(" " * (9 << 20))
    with pytest.raises(InvalidConfig, match="at most"):
        read_accounts(str(path))


def test_changes_are_taken_and_mistakes_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = write_access_file(tmp_path / "a.json", READER)
    seen: list[AccountTable] = []

    async def scenario() -> None:
        file = AccountFile(str(path))
        assert set(file.load().accounts) == {"reader-key"}
        file.start(seen.append)
        assert not await file.check()
        write_access_file(path, READER, ADMIN)
        assert await file.check()
        assert not await file.check()
        path.write_text(json.dumps({"accounts": [{**READER, "secretKey": "canar"}]}))
        assert not await file.check()
        path.unlink()
        assert not await file.check()
        path.symlink_to(tmp_path / "elsewhere")
        assert not await file.check()
        path.unlink()
        write_access_file(path, ADMIN)
        assert await file.check()
        await file.stop()

    asyncio.run(scenario())
    assert [sorted(table.accounts) for table in seen] == [
        ["admin-key", "reader-key"],
        ["admin-key"],
    ]
    assert caplog.text.count("the old accounts stay in use") == 2
    assert "canar" not in caplog.text
