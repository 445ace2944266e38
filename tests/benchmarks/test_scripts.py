"""Every module of the benchmarks can be imported, and the commands run from their documented paths.

No type checker looks at them.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ("broker", "payloads", "replication", "report", "spark_sink", "spark_source", "store")
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.joinpath("benchmarks").rglob("[a-z]*.py")
)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_by_its_path(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{command}.py"), "--help"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert "--quick" in done.stdout


def test_every_file_beside_the_folders_is_a_command() -> None:
    beside = {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
    assert beside == {*COMMANDS}
