"""`requirements.lock`: everything that is installed is pinned to one version and to known files."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.markers import Marker

ROOT = Path(__file__).resolve().parent.parent
ENTRY = re.compile(
    r"([a-z0-9-]+)==([0-9][\w.+!-]*)(?: ; ([^\\]+?))? ((?:--hash=sha256:[0-9a-f]{64} ?)+)"
)
# The versions that setup.py allows and that exist today.
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# Records how it was called, as one line per call; stands for the interpreter of the virtualenv.
RECORDER = """#!/bin/sh
echo "$*" >>"$0.calls"
exit 0
"""


class Pin(NamedTuple):
    """One entry; without a marker it holds for every interpreter."""

    name: str
    version: str
    marker: Marker | None

    def applies(self, python: str) -> bool:
        environment = {
            "python_version": python,
            "python_full_version": f"{python}.1",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_python_implementation": "CPython",
            "implementation_name": "cpython",
        }
        return self.marker is None or self.marker.evaluate(environment)


def pins() -> list[Pin]:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", "")
    found = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        entry = ENTRY.fullmatch(re.sub(r"\s+", " ", line).strip())
        assert entry is not None, line[:80]
        found.append(Pin(entry[1], entry[2], Marker(entry[3]) if entry[3] else None))
    return found


def pinned_for(python: str) -> dict[str, str]:
    """Versions by name; a name that two entries pin for one interpreter cannot be installed."""
    chosen = [pin for pin in pins() if pin.applies(python)]
    found = {pin.name: pin.version for pin in chosen}
    assert len(found) == len(chosen), sorted(pin.name for pin in chosen)
    return found


def wanted() -> set[str]:
    """Names in `setup.py`, of the package itself and of the extras that tests install."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    given = {
        keyword.arg: keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup"
        for keyword in node.keywords
    }
    extras: dict[str, list[str]] = ast.literal_eval(given["extras_require"])
    needed: list[str] = ast.literal_eval(given["install_requires"])
    # The site is built in a virtualenv of its own, and tests need none of it.
    del extras["docs"]
    texts = [*needed, *(text for extra in extras.values() for text in extra)]
    # What builds the package, since that happens without an environment that pip fills by itself.
    names = {"packaging", "pip", "setuptools", "wheel"}
    names |= {re.match(r"[\w.-]+", text)[0] for text in texts}  # type: ignore[index]
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned_with_hashes(python: str) -> None:
    found = pinned_for(python)
    assert wanted() - found.keys() == set(), "run python tools/lock_requirements.py"
    assert len(found) > 40


def test_what_an_older_interpreter_needs_besides_is_pinned_too() -> None:
    """A lock that was made on one interpreter lacks it, or names a version that others cannot use.

    pytest needs both packages before Python 3.11, which has them built in.
    """
    assert pinned_for("3.10").keys() - pinned_for("3.11").keys() >= {"exceptiongroup", "tomli"}
    assert pinned_for("3.10")["numpy"] != pinned_for("3.12")["numpy"]


def test_a_virtualenv_gets_nothing_but_what_is_pinned(tmp_path: Path) -> None:
    """By the commands that are run: each takes hashes, or is the package itself without others."""
    recorder = tmp_path / "venv" / "bin" / "python"
    recorder.parent.mkdir(parents=True)
    for name in ("python", "pip"):
        path = recorder.with_name(name)
        path.write_text(RECORDER, encoding="utf-8")
        path.chmod(0o755)
    script = ROOT / "tools" / "make_venv.sh"
    command = ["bash", str(script), sys.executable, str(tmp_path / "venv")]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=300)
    calls = Path(f"{recorder}.calls").read_text(encoding="utf-8").splitlines()
    builders, everything, package = [call.split() for call in calls]
    lock = str(ROOT / "requirements.lock")
    assert "--require-hashes" in builders
    assert {"--require-hashes", "--no-build-isolation", lock} <= set(everything)
    assert {"--no-deps", "--no-build-isolation", str(ROOT)} <= set(package)
    assert not {"--index-url", "--extra-index-url", "--trusted-host"} & {
        *builders, *everything, *package
    }  # fmt: skip


def test_what_builds_packages_is_installed_first(tmp_path: Path) -> None:
    """With its hashes: the part of the lock that the first command is given."""
    script = (ROOT / "tools" / "make_venv.sh").read_text(encoding="utf-8")
    [awk] = re.findall(r"^awk '([^']+)'", script, re.MULTILINE)
    done = subprocess.run(
        ["awk", awk, str(ROOT / "requirements.lock")], check=True, capture_output=True, text=True
    )
    entries = done.stdout.replace("\\\n", "").splitlines()
    assert [line.split("==")[0] for line in entries] == ["packaging", "pip", "setuptools", "wheel"]
    assert all("--hash=sha256:" in line for line in entries)


@pytest.mark.skipif(
    Path(sys.prefix).resolve() != (ROOT / ".venv").resolve(),
    reason="another environment than the one that make creates",
)
def test_what_is_installed_here_is_what_is_pinned() -> None:
    pinned = pinned_for(f"{sys.version_info.major}.{sys.version_info.minor}")
    installed = {name: importlib.metadata.version(name) for name in wanted() & pinned.keys()}
    assert installed == {name: pinned[name] for name in installed}, "remove .venv/.installed"
