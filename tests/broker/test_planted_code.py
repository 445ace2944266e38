"""Pickles with code, planted in every file of a store and in every request: none is executed."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RmqError
from tests.broker.running_broker import UNIQUE, broker_config, running

Run = Callable[..., Any]


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self._canary = str(canary)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self._canary,)


def test_the_planted_pickle_runs_when_it_is_loaded(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickle.loads(pickle.dumps(Bomb(canary)))
    assert canary.is_dir()


async def _use(root: Path) -> None:
    async with running(broker_config(root)) as asker:
        later = f"TIMER_DELAY_SEC\x013600\x02UNIQ_KEY\x01{UNIQUE}\x02"
        assert (await asker.send("T", text=later)).code == 0
        assert (await asker.send("T", text=f"DELAY\x0118\x02UNIQ_KEY\x01{UNIQUE}\x02")).code == 0
        assert (await asker.send("T", text=f"KEYS\x01k\x02UNIQ_KEY\x01{UNIQUE}\x02")).code == 0
        await asker.pull("T", sysFlag=5, commitOffset=0)
        assert (await asker.ask(25, b"brokerPermission=6\ntransactionCheckMax=3\n")).code == 0


def test_no_file_of_a_store_is_run(tmp_path: Path, run_async: Run) -> None:
    canary = tmp_path / "canary"
    bomb = pickle.dumps(Bomb(canary))
    used = tmp_path / "used"
    run_async(_use(used))
    files = [path.relative_to(used) for path in used.rglob("*") if path.is_file()]
    # One of each kind; the backup of a table goes with it, or it would stand in.
    kinds = {(path.parts[0], path.suffix, path.stem): path for path in files}
    names = sorted(path for path in kinds.values() if path.name != "lock")
    assert len(names) > 10

    async def start(root: Path) -> None:
        async with running(broker_config(root)):
            pass

    for name in names:
        root = tmp_path / "planted"
        shutil.copytree(used, root)
        size = (root / name).stat().st_size
        (root / name).write_bytes(bomb.ljust(size, b"."))
        backup = root / f"{name}.bak"
        if backup.exists():
            backup.write_bytes(bomb)
        # Damage may stop a start; it must not do anything else.
        with contextlib.suppress(RmqError, OSError):
            run_async(start(root))
        shutil.rmtree(root)
        assert not canary.exists(), name


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_no_request_is_run(tmp_path: Path, run_async: Run, serialize_type: int) -> None:
    canary = tmp_path / "canary"
    bomb = pickle.dumps(Bomb(canary))

    async def scenario() -> None:
        async with running(broker_config(tmp_path / "store")) as asker:
            text = bomb.decode("latin-1")
            ext = {"topic": "T", "queueId": "0", "properties": text, "key": text}
            for code in sorted(asker.broker.router.codes):
                command = RemotingCommand(code, dict(ext), bomb, serialize_type=serialize_type)
                if code > 32_767:
                    command.serialize_type = 0
                await asker.client.request(asker.broker.address, command, 10_000)
            assert (await asker.send("T", bomb)).code == 0

    run_async(scenario())
    assert not canary.exists()
