"""Jars of real peers, resolved by Maven coordinates and kept outside the repository.

Owns the cache directory: `RMQ_PEER_CACHE`, or `~/.cache/pyspark-rmq/peers`. A set of jars that is
there is used without Maven and without a network. Never part of the installed packages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

RESOLVE_TIMEOUT_S = 300

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


class PeerUnavailable(Exception):
    """A peer cannot be had on this machine now; the text says why, for a visible skip."""


def cache_root() -> Path:
    configured = os.environ.get("RMQ_PEER_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "pyspark-rmq" / "peers"


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time fills a cache directory; the others wait and find it filled."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / ".lock").open("w")
    except OSError as error:
        raise PeerUnavailable(f"peer cache {directory} cannot be used: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def resolved_jars(set_name: str, coordinates: Sequence[str], *, alone: bool = False) -> Path:
    """The directory with the jars of `group:artifact:version` coordinates and all they need.

    `alone` leaves out what they need.
    """
    directory = cache_root() / set_name
    jars = directory / "lib"
    with locked(directory):
        if not jars.is_dir():
            _resolve(directory, jars, coordinates, alone)
    return jars


def _resolve(directory: Path, jars: Path, coordinates: Sequence[str], alone: bool) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("mvn is not installed and the jars are not cached")
    # Beside its final place, so that the rename is atomic: a directory `lib` is always complete.
    with tempfile.TemporaryDirectory(dir=directory, prefix="resolving-") as work:
        pom = Path(work) / "pom.xml"
        dependencies = "\n".join(_dependency(one, alone) for one in coordinates)
        pom.write_text(_POM.format(dependencies=dependencies))
        output = Path(work) / "lib"
        command = [
            maven, "--quiet", "--batch-mode", "--file", str(pom),
            "dependency:copy-dependencies", f"-DoutputDirectory={output}", "-DincludeScope=runtime",
        ]  # fmt: skip
        try:
            finished = subprocess.run(
                command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise PeerUnavailable(f"mvn did not finish within {RESOLVE_TIMEOUT_S} s") from error
        if finished.returncode != 0 or not any(output.glob("*.jar")):
            raise PeerUnavailable(
                f"mvn could not resolve {', '.join(coordinates)}: {_first_error(finished.stdout)}"
            )
        output.rename(jars)


def _dependency(coordinate: str, alone: bool) -> str:
    group, artifact, version = coordinate.split(":")
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    excluded = f"<exclusions>{everything}</exclusions>" if alone else ""
    return (
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{excluded}</dependency>"
    )


def _first_error(maven_output: str) -> str:
    errors = [line for line in maven_output.splitlines() if "ERROR" in line]
    return (errors or ["no reason given"])[0][:400]
