"""Which Python Spark runs, and whether it has this package. No Spark.

Spark starts Python processes of its own, by two rules:

- to find `.format("rmq")`, the JVM runs `PYSPARK_DRIVER_PYTHON`, else `PYSPARK_PYTHON`, else
  `python3`, as its environment had them when it was started;
- for a source that a program registers, and for tasks, the session runs `pythonExec`:
  `PYSPARK_PYTHON`, else `python3`.

If that is not the interpreter of the virtualenv, the package is not there.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core import errors

DRIVER_VARIABLE: Final = "PYSPARK_DRIVER_PYTHON"
WORKER_VARIABLE: Final = "PYSPARK_PYTHON"
DEFAULT: Final = "python3"

NEEDED: Final = ("pyspark_rmq", "broker_core", "numpy", "msgpack", "orjson", "pyarrow")
_TIMEOUT_S: Final = 120
_ASK: Final = f"""
import importlib.util, json, platform, sys
missing = [n for n in {NEEDED!r} if importlib.util.find_spec(n) is None]
print(json.dumps([sys.executable, platform.python_version(), missing]))
"""


class Interpreter(NamedTuple):
    """A command that Spark runs as Python."""

    command: str
    setting: str
    """The variable that selects it, or the fact that none is set."""


class Found(NamedTuple):
    """The Python behind a command."""

    path: str
    version: str
    missing: tuple[str, ...]
    """Packages that are not installed."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""


def finder(environ: Mapping[str, str]) -> Interpreter:
    """What a JVM with this environment runs to find data sources."""
    for variable in (DRIVER_VARIABLE, WORKER_VARIABLE):
        if environ.get(variable):
            return Interpreter(environ[variable], f"{variable}={environ[variable]}")
    return Interpreter(DEFAULT, f"{WORKER_VARIABLE} is not set")


def worker(environ: Mapping[str, str]) -> Interpreter:
    """What a session with this environment runs for tasks and registered sources."""
    without_driver = {k: v for k, v in environ.items() if k != DRIVER_VARIABLE}
    return finder(without_driver)


@functools.lru_cache(maxsize=16)
def look_at(command: str) -> Found:
    """Run the command once and inspect it; the current interpreter is not run."""
    path = shutil.which(command)
    if path is None:
        return Found(command, "", (), "there is no such program")
    if os.path.abspath(path) == os.path.abspath(sys.executable):  # noqa: PTH100
        # Links are not followed: that of a virtualenv leads to a Python without its packages.
        return Found(path, platform.python_version(), ())
    try:
        done = subprocess.run(
            [path, "-c", _ASK], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        executable, version, missing = json.loads(done.stdout)
        return Found(str(executable), str(version), tuple(missing))
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return Found(path, "", (), "it does not run Python code")


def problem_of(interpreter: Interpreter) -> str:
    """The problem and its fix in one line; empty if it can be used."""
    found = look_at(interpreter.command)
    shown = (
        interpreter.command
        if interpreter.command == found.path
        else (f"{interpreter.command} ({found.path})")
    )
    here = platform.python_version()
    if found.problem:
        reason = f"and {found.problem}"
    elif "pyspark_rmq" in found.missing:
        reason = "which does not have pyspark_rmq"
    elif found.missing:
        reason = f"which does not have {', '.join(found.missing)}"
    elif found.version.split(".")[:2] != here.split(".")[:2]:
        reason = f"which is Python {found.version}, and this program runs {here}"
    else:
        return ""
    return errors.explained(
        f"Spark runs {shown} as Python, because {interpreter.setting}, {reason}: set"
        f" {WORKER_VARIABLE}={sys.executable} and {DRIVER_VARIABLE} to the same, before Spark"
        " starts, or make the session with pyspark_rmq.session()",
        "spark-runs-another-python",
    )


def environment_problem(environ: Mapping[str, str]) -> str:
    """The problem of a session that is started with this environment; empty if there is none."""
    return problem_of(finder(environ)) or problem_of(worker(environ))
