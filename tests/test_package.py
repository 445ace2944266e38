"""The source distribution and the wheel contain what they should, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tools.try_readme import SHELL, blocks

ROOT = Path(__file__).resolve().parent.parent
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
BUILD = """
import sys
from setuptools import build_meta
# Setuptools changes sys.argv.
target = sys.argv[1]
build_meta.build_sdist(target)
build_meta.build_wheel(target)
"""


BINARIES = (".whl", ".gz", ".zip", ".jar", ".class", ".so", ".o", ".a", ".pyc", ".exe")


def test_no_built_file_is_committed() -> None:
    """Everything in the checkout is source."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert [name for name in listed.stdout.split("\0") if name.endswith(BINARIES)] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], zipfile.ZipFile]:
    """Names in the source distribution, without its first folder, and the wheel."""
    source = tmp_path_factory.mktemp("source")
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("broker_core", "pyspark_rmq", "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    # What setuptools would take unless it is excluded.
    (source / "tests").mkdir()
    shutil.copy(__file__, source / "tests")
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    target = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(target)],
        cwd=source,
        env={**os.environ, "RMQ_NATIVE": "no"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [sdist] = target.glob("*.tar.gz")
    [wheel] = target.glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    return names, zipfile.ZipFile(wheel)


def test_the_source_distribution(built: tuple[set[str], zipfile.ZipFile]) -> None:
    names, _ = built
    headers = {f"broker_core/codec/native/include/{p.name}" for p in
               (ROOT / "broker_core/codec/native/include").glob("*.h")}  # fmt: skip
    assert {*FILES, "docs/errors.md", "broker_core/py.typed", *headers} <= names
    tops = {name.partition("/")[0] for name in names if "/" in name}
    assert tops == {"broker_core", "pyspark_rmq", "docs", "pyspark_rmq.egg-info"}


def test_the_wheel(built: tuple[set[str], zipfile.ZipFile]) -> None:
    _, wheel = built
    names = set(wheel.namelist())
    pages = {f"pyspark_rmq/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    typed = {"broker_core/py.typed", "broker_core/__init__.pyi", "pyspark_rmq/py.typed"}
    sources = {
        path.relative_to(ROOT).as_posix()
        for top in ("broker_core", "pyspark_rmq")
        for path in (ROOT / top).rglob("*.py")
    }
    assert pages | typed | sources <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"broker_core", "pyspark_rmq"}


def test_the_metadata(built: tuple[set[str], zipfile.ZipFile]) -> None:
    _, wheel = built
    [path] = [name for name in wheel.namelist() if name.endswith("dist-info/METADATA")]
    metadata = Parser().parsestr(wheel.read(path).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert "rocketmq" in metadata["Keywords"]
    assert set(metadata.get_all("Provides-Extra", [])) >= {"spark", "metrics", "compression"}


def test_wheels_are_built_for_every_python_that_the_metadata_names() -> None:
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', setup)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [built] = re.findall(r"^build = \[(.*)\]$", settings, re.MULTILINE)
    assert [f'"cp3{minor}-*"' for minor in named] == built.split(", ")
    workflow = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    [tried] = re.findall(r"^ +python: \[(.*)\]$", workflow, re.MULTILINE)
    assert [f'"3.{minor}"' for minor in named] == tried.split(", ")


def test_the_blocks_of_the_readme_that_can_be_pasted() -> None:
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [kind for kind, _ in found].count("python") == 3
    [commands] = [body for kind, body in found if kind != "python"]
    assert commands.startswith(SHELL)
