"""Archives of loaded classes for the JVMs that tests start.

A JVM that works for a few seconds spends half of its CPU on loading classes. With an archive (class
data sharing) it maps them instead. An archive belongs to one Java and to the very jars it was made
from, at their paths; a JVM that it does not fit ignores it. So it is kept in the virtualenv that
has the jars. Archives only save time: without one everything works as well.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

# The JVM writes its remarks about an archive to standard output.
_QUIET = "-Xlog:disable"


@cache
def java_version() -> str:
    """What the `java` that Spark would start says of itself; empty without one."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        return ""
    done = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    return f"{found} {done.stderr}"


def archive_path(program: str, *parts: str) -> Path:
    """Where the archive of a program is, if there is one. `parts` name what it was made from."""
    text = "\0".join((java_version(), program, *parts))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Path(sys.prefix) / "classes" / f"{program}-{digest}.jsa"


def archive_flags(program: str, *parts: str) -> tuple[str, ...]:
    """JVM flags that use the archive; none without one."""
    path = archive_path(program, *parts)
    return (f"-XX:SharedArchiveFile={path}", _QUIET) if path.is_file() else ()


@contextmanager
def recorded_archive(program: str, *parts: str) -> Iterator[tuple[str, ...]]:
    """Flags for a JVM that runs and ends inside: what it loaded becomes the archive."""
    path = archive_path(program, *parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(f".{os.getpid()}")
    try:
        yield (f"-XX:ArchiveClassesAtExit={made}", _QUIET)
        if made.is_file():
            made.replace(path)
    finally:
        made.unlink(missing_ok=True)
