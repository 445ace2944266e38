"""Apache RocketMQ's own Java clients, driven from Python.

`JavaClient("5.5.0")` is one Java process that holds any number of producers and consumers of that
version; see `driven_client.py` for its commands. The client classes come from Maven by coordinates,
unmodified; the driver beside this file is compiled against each version once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.interop.driven_client import DrivenClient
from tests.interop.maven_artifacts import PeerUnavailable, cache_root, locked, resolved_jars

CLIENT_VERSIONS = ("5.5.0", "4.9.8")
JAVA_RELEASE = 17
COMPILE_TIMEOUT_S = 300
BINARY_HEADERS = ("-Drocketmq.serialize.type=ROCKETMQ",)

_SOURCES = Path(__file__).parent / "java_client"
_QUICK_START_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def java_tool(name: str) -> str:
    """`java` or `javac`, that of JAVA_HOME first."""
    java_home = os.environ.get("JAVA_HOME")
    in_home = shutil.which(name, path=str(Path(java_home) / "bin")) if java_home else None
    found = in_home or shutil.which(name)
    if found is None:
        raise PeerUnavailable(f"{name} is not installed")
    return found


def compiled_class_path(
    set_name: str, coordinates: Sequence[str], sources: Path, *, also: Sequence[Path] = ()
) -> str:
    """Our driver compiled against the peer's jars, once per version of either.

    `also` are files of other drivers that this one uses.
    """
    jars = resolved_jars(set_name, coordinates)
    files = [*sorted(sources.glob("*.java")), *also]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    directory = cache_root() / set_name
    classes = directory / f"classes-{sources.name}-{digest}"
    with locked(directory):
        if not classes.is_dir():
            _compile(files, jars, classes)
    return f"{classes}{os.pathsep}{jars}/*"


def _compile(files: Iterable[Path], jars: Path, classes: Path) -> None:
    # Beside its final place, so that the rename is atomic: a directory of classes is complete.
    with tempfile.TemporaryDirectory(dir=classes.parent, prefix="compiling-") as work:
        output = Path(work) / "classes"
        command = [
            java_tool("javac"), "--release", str(JAVA_RELEASE), "-nowarn", "-proc:none",
            "-d", str(output), "-cp", f"{jars}/*", *map(str, files),
        ]  # fmt: skip
        finished = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S
        )
        if finished.returncode != 0:
            # Not a reason to skip: the driver is ours and must compile against each version.
            raise AssertionError(f"the client driver does not compile: {finished.stderr}")
        output.rename(classes)


def client_class_path(version: str) -> str:
    """Resolves and compiles what is not there yet; raises `PeerUnavailable` if it cannot be had."""
    return compiled_class_path(
        f"rocketmq-client-{version}", [f"org.apache.rocketmq:rocketmq-client:{version}"], _SOURCES
    )


class JavaClient(DrivenClient):
    """One Java process with its clients."""

    language = "Java"

    def __init__(
        self, version: str, flags: Sequence[str] = (), *, quick_start: bool = True
    ) -> None:
        self._class_path = client_class_path(version)
        self._flags = tuple(flags)
        self._quick_start = quick_start
        super().__init__(version)

    def _command(self, home: str) -> list[str]:
        return [
            java_tool("java"),
            # The client keeps logs and the offsets of broadcasting consumers under these.
            f"-Duser.home={home}",
            f"-Djava.io.tmpdir={home}",
            f"-Drocketmq.client.logRoot={home}",
            f"-Drocketmq.log.root={home}",
            f"-Drocketmq.client.localOffsetStoreDir={home}/offsets",
            "-Drocketmq.client.logLevel=WARN",
            *(_QUICK_START_FLAGS if self._quick_start else ()),
            *self._flags,
            "-cp",
            self._class_path,
            "Scenarios",
        ]

    def another(self) -> JavaClient:
        return JavaClient(self.version, self._flags, quick_start=self._quick_start)
