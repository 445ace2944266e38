"""The Node.js client `ali-ons`, driven from Python.

The library comes from npm by name and version, unmodified; `package-lock.json` pins what was seen.
It is kept in the cache of peers.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.interop.driven_client import DrivenClient
from tests.interop.maven_artifacts import PeerUnavailable, cache_root, locked

NODE_VERSIONS = ("3.12.0",)
INSTALL_TIMEOUT_S = 300
INSTALL_HINT = "bash tools/ensure_go_node.sh node"

_SOURCES = Path(__file__).parent / "node_client"
_PINNED = ("package.json", "package-lock.json")


def node_modules(version: str) -> Path:
    """The library with all it needs; raises `PeerUnavailable` if it cannot be had."""
    pinned = b"\0".join((_SOURCES / name).read_bytes() for name in _PINNED)
    directory = cache_root() / f"ali-ons-{version}"
    modules = directory / f"modules-{hashlib.sha256(pinned).hexdigest()[:16]}"
    with locked(directory):
        if not modules.is_dir():
            _install(directory, modules)
    return modules


def _install(directory: Path, modules: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise PeerUnavailable(f"npm is not installed; install it with: {INSTALL_HINT}")
    # Beside its final place, so that the rename is atomic: a directory that is there is complete.
    with tempfile.TemporaryDirectory(dir=directory, prefix="installing-") as work:
        for name in _PINNED:
            shutil.copy(_SOURCES / name, work)
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev"]
        try:
            finished = subprocess.run(
                command,
                cwd=work,
                capture_output=True,
                text=True,
                timeout=INSTALL_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PeerUnavailable(f"npm did not finish within {INSTALL_TIMEOUT_S} s") from None
        if finished.returncode != 0:
            raise PeerUnavailable(f"npm could not install ali-ons: {finished.stderr[-400:]}")
        (Path(work) / "node_modules").rename(modules)


class NodeClient(DrivenClient):
    """One process with Node.js clients."""

    language = "Node"

    def __init__(self, version: str = NODE_VERSIONS[0]) -> None:
        node = shutil.which("node")
        if node is None:
            raise PeerUnavailable(f"node is not installed; install it with: {INSTALL_HINT}")
        self._node = node
        super().__init__(version, {"NODE_PATH": str(node_modules(version))})

    def _command(self, home: str) -> list[str]:
        # The library keeps the offsets of broadcasting consumers under HOME.
        return ["env", f"HOME={home}", self._node, str(_SOURCES / "main.js")]
