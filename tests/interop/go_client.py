"""Apache's Go client, driven from Python: our driver, built once per version of its sources.

The library comes through the Go module proxy by its coordinates, unmodified; `go.sum` pins what
was seen. The built program is kept in the cache of peers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.driven_client import DrivenClient
from tests.interop.maven_artifacts import PeerUnavailable, cache_root, locked

GO_VERSIONS = ("2.1.2",)
# A fresh machine compiles Go's own library, too.
BUILD_TIMEOUT_S = 600
INSTALL_HINT = "bash tools/ensure_go_node.sh go"

_SOURCES = Path(__file__).parent / "go_client"


def go_driver(version: str) -> Path:
    """The program; builds what is not there yet, raises `PeerUnavailable` if that cannot be."""
    files = sorted(path for path in _SOURCES.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    directory = cache_root() / f"rocketmq-client-go-{version}"
    program = directory / f"driver-{digest}"
    with locked(directory):
        if not program.exists():
            _build(directory, program)
    return program


def _build(directory: Path, program: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise PeerUnavailable(f"go is not installed; install it with: {INSTALL_HINT}")
    if _run(go, "mod", "download").returncode != 0:
        raise PeerUnavailable("the modules of the Go client cannot be had: go mod download failed")
    # Beside its final place, so that the rename is atomic: a program that is there is complete.
    building = directory / f".building-{os.getpid()}"
    built = _run(go, "build", "-trimpath", "-o", str(building), ".")
    if built.returncode != 0:
        # Not a reason to skip: the driver is ours and must compile.
        raise AssertionError(f"the Go driver does not compile: {built.stderr}")
    building.rename(program)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    # Without cgo the C compiler is not needed and there is less to build.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    try:
        return subprocess.run(
            command,
            cwd=_SOURCES,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{' '.join(command[:2])} took over {BUILD_TIMEOUT_S} s") from None


class GoClient(DrivenClient):
    """One process with Go clients."""

    language = "Go"

    def __init__(self, version: str = GO_VERSIONS[0]) -> None:
        self._program = go_driver(version)
        super().__init__(version)

    def _command(self, home: str) -> list[str]:
        # The library keeps the offsets of broadcasting consumers and its logs under HOME.
        return ["env", f"HOME={home}", "ROCKETMQ_GO_LOG_LEVEL=warn", str(self._program)]
