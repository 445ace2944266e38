"""Virtualenvs with one release of Spark each, beside the jars of the other peers.

A virtualenv sees this checkout through a `.pth` file, as an editable installation would; the native
code is the one built here, because the interpreter is the same. `RMQ_PEER_CACHE` moves them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.maven_artifacts import PeerUnavailable, cache_root, locked

# The newest patch of each line; `make test` has the newest line of all.
RELEASES: Final = ("4.0.5", "4.1.4", "4.2.1")
INSTALL_TIMEOUT_S: Final = 900
CONNECT: Final = (
    "grpcio>=1.76",
    "grpcio-status>=1.76",
    "googleapis-common-protos>=1.71",
    "zstandard",
)

_PROJECT: Final = Path(__file__).resolve().parents[2]
_NEEDED: Final = (
    "pyarrow>=15", "pandas>=2.2,<3", "numpy", "msgpack", "orjson", "lz4", "zstandard", "setuptools",
    "uvloop; sys_platform != 'win32'",
)  # fmt: skip
_TESTS: Final = (
    "pytest", "pytest-timeout", "pytest-xdist", "chispa", "cryptography", "hypothesis", *CONNECT
)  # fmt: skip


def spark_python(release: str, packages: Sequence[str] = _TESTS) -> Path:
    """The interpreter of a virtualenv with that release; raises `PeerUnavailable`."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    directory = cache_root() / f"spark-{release}-python-{version}"
    venv = directory / "venv"
    with locked(directory):
        wanted = [f"pyspark=={release}", *_NEEDED, *packages]
        if not set(wanted) <= _installed(venv):
            _install(venv, sorted({*wanted, *_installed(venv)}))
        # Checkouts share the cache, so the path is written every time.
        packages_dir = sysconfig.get_path("purelib", vars={"base": str(venv)})
        (Path(packages_dir) / "checkout.pth").write_text(f"{_PROJECT}\n")
    return venv / "bin" / "python"


def _installed(venv: Path) -> set[str]:
    """What was asked for when it was made; nothing for one that was not finished."""
    mark = venv / ".installed"
    return set(mark.read_text().splitlines()) if mark.exists() else set()


def _install(venv: Path, packages: Sequence[str]) -> None:
    # A complete one may be in use, and only lacks something.
    if not (venv / ".installed").exists():
        shutil.rmtree(venv, ignore_errors=True)
    python = venv / "bin" / "python"
    commands = (
        [sys.executable, "-m", "venv", str(venv)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-warn-script-location", *packages],
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="pip-", dir=venv.parent) as scratch:
        for command in commands:
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_TIMEOUT_S,
                    check=False,
                    env={**os.environ, "TMPDIR": scratch},
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise PeerUnavailable(f"{packages[0]} cannot be installed: {error}") from error
            if done.returncode != 0:
                raise PeerUnavailable(
                    f"{packages[0]} cannot be installed: {done.stderr.strip()[-400:]}"
                )
    (venv / ".installed").write_text("".join(f"{package}\n" for package in packages))
