"""`rmq doctor`: checks what a pipeline needs on this machine, and says how to repair it.

Public names of the client only; Spark is not started.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Final, NamedTuple

from broker_core import (
    ClientConfig,
    SyncAdmin,
    add_cluster_options,
    codec_backend,
    errors,
    given_cluster,
    paint,
)
from pyspark_rmq.environment.interpreters import finder, look_at, problem_of, worker

EXAMPLES: Final = """\
  rmq doctor                     Python, Java, Spark and Arrow
  rmq doctor -n 127.0.0.1:9876   also name servers and brokers
  rmq doctor --profile prod      the same, with its account and TLS settings"""

_PYTHON_MIN: Final = (3, 10)
_SPARK_FIRST, _SPARK_END = (4, 0), (4, 4)
# Of Spark 4.0; later releases name a newer one.
_ARROW_MIN: Final = "11"
_JAVA_MIN: Final = 17
_CONNECT_TIMEOUT_S: Final = 5.0
_PROGRAM_TIMEOUT_S: Final = 120


class Finding(NamedTuple):
    """The result of one check; `fix` is empty if nothing is wrong."""

    what: str
    text: str
    fix: str = ""
    reason: str = ""
    """What is wrong, if `text` does not say it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    title = "cluster; without one no server is checked"
    add_cluster_options(parser, title, or_local=False)


def run(options: argparse.Namespace) -> int:
    """Print a line for each check, and the fix below those that fail; 1 if any does."""
    cluster = given_cluster(options, or_local=False)
    failed = 0
    for finding in findings(";".join(cluster.name_servers), cluster.security):
        mark = (
            paint("FAIL", "red", sys.stdout) if finding.fix else paint("ok  ", "green", sys.stdout)
        )
        sys.stdout.write(f"{mark}  {finding.what:12}  {finding.text}\n")
        if finding.fix:
            failed += 1
            if finding.reason:
                sys.stdout.write(f"{'':4}  {'':12}  {finding.reason}\n")
            fix = finding.fix.replace("\n", "\n" + " " * 25)
            sys.stdout.write(f"{'':4}  {'':12}  fix: {fix}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{failed} problem{'' if failed == 1 else 's'} found\n")
    return 1 if failed else 0


def findings(servers: str, security: Mapping[str, Any]) -> Iterator[Finding]:
    """All checks, one after the other."""
    yield python_finding(sys.version_info[:2])
    yield package_finding()
    yield native_finding(codec_backend())
    yield from distribution_findings(_installed, arrow_min(_required("pyspark")))
    yield java_finding(java_version())
    yield from interpreter_findings()
    if servers:
        yield from server_findings(servers, security)
    else:
        text = "not checked: give -n HOST:PORT or --profile NAME"
        yield Finding("name servers", text)


def python_finding(found: tuple[int, int]) -> Finding:
    """This interpreter."""
    text = f"{platform.python_version()} ({sys.executable})"
    fix = "use Python 3.10 or newer" if found < _PYTHON_MIN else ""
    return Finding("Python", text, fix)


def package_finding() -> Finding:
    """The installed package."""
    number = _installed("pyspark-rmq")
    if number is None:
        fix = "pip install '.[spark]' in a checkout, or install a wheel of it"
        return Finding("pyspark-rmq", "not installed here", fix)
    return Finding("pyspark-rmq", number)


def native_finding(backend: str) -> Finding:
    """Whether the compiled code is in use."""
    if backend == "native":
        return Finding("native code", "in use")
    fix = (
        "install a wheel for this platform, or a C compiler and the headers of Python, and install"
        " the package again; without it everything works, more slowly"
    )
    return Finding("native code", "not built, the Python version is in use", fix)


def distribution_findings(
    installed: Callable[[str], str | None], arrow_from: str = _ARROW_MIN
) -> Iterator[Finding]:
    """Spark and Arrow."""
    spark = installed("pyspark") or installed("pyspark-client")
    if spark is None:
        yield Finding("Spark", "not installed", "pip install 'pyspark>=4.0,<4.4'")
    else:
        is_known = _SPARK_FIRST <= _numbers(spark)[:2] < _SPARK_END
        yield Finding("Spark", spark, "" if is_known else "pip install 'pyspark>=4.0,<4.4'")
    arrow = installed("pyarrow")
    if arrow is None or _numbers(arrow) < _numbers(arrow_from):
        yield Finding("Arrow", arrow or "not installed", f"pip install 'pyarrow>={arrow_from}'")
    else:
        yield Finding("Arrow", arrow)


def arrow_min(requirements: Iterable[str]) -> str:
    """The oldest Arrow that Spark takes, from the requirements of its package."""
    for text in requirements:
        found = re.match(r"pyarrow\s*>=\s*([\d.]+)", text)
        if found:
            return found[1]
    return _ARROW_MIN


def java_finding(found: tuple[str, int | None]) -> Finding:
    """`found` is the result of `java_version`."""
    program, number = found
    fix = f"install Java {_JAVA_MIN} or newer and set JAVA_HOME to its directory"
    if number is None:
        return Finding("Java", f"{program} does not run", fix)
    return Finding("Java", f"{number} ({program})", fix if number < _JAVA_MIN else "")


def java_version() -> tuple[str, int | None]:
    """The program that Spark will run, and its version; None if it does not run."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java") or "java"  # noqa: PTH118
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROGRAM_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return program, None
    return program, parse_java_version(done.stderr + done.stdout)


def parse_java_version(text: str) -> int | None:
    """The feature release of `java -version`: 17 of "17.0.9", 8 of "1.8.0_392"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def interpreter_findings() -> Iterator[Finding]:
    """The Python that Spark will run, if it is started from here."""
    found_by, run_by = finder(os.environ), worker(os.environ)
    named = [("Spark runs", run_by)]
    if found_by != run_by:
        named.insert(0, ("Spark finds", found_by))
    for what, interpreter in named:
        text = f"{look_at(interpreter.command).path}, because {interpreter.setting}"
        reason, colon, fix = problem_of(interpreter).partition(": set ")
        yield Finding(what, text, f"set {fix}" if colon else "", reason)


def server_findings(servers: str, security: Mapping[str, Any]) -> Iterator[Finding]:
    """Each name server, and each address that it advertises; `security` is of `ClientConfig`."""
    try:
        addresses = ClientConfig(servers, **security).name_servers  # type: ignore[arg-type]
    except errors.InvalidConfig as error:
        yield Finding("name servers", servers, str(error))
        return
    seen: set[str] = set()
    for address in addresses:
        try:
            with SyncAdmin(ClientConfig((address,), **security)) as admin:
                brokers = admin.cluster_info().brokers
        except errors.RmqError as error:
            reason, _, link = str(error).partition("\n")
            if isinstance(error, errors.InvalidArgument):
                # A broker is there, and the text says what to give.
                reason, _, way = reason.partition(": ")
            elif isinstance(error, errors.NoPermission):
                way = "give --access-key and --secret-key-file of an account of the cluster"
                link = "See docs/errors.md#access-denied"
            elif getattr(error, "tls_failed", False):
                way = "compare --tls, --tls-ca and --tls-cert with the TLS settings of the server"
                link = "See docs/errors.md#tls-mismatch"
            else:
                way = "start a name server there, or give the right address"
            fix = f"{way}\n{link}".strip()
            yield Finding("name server", address, fix, reason)
            continue
        if not brokers:
            reason = "no broker is registered there"
            yield Finding("name server", address, f"start a broker with -n {address}", reason)
            continue
        names = "1 broker name" if len(brokers) == 1 else f"{len(brokers)} broker names"
        yield Finding("name server", f"{address}, {names}")
        for name, broker in sorted(brokers.items()):
            for member, advertised in sorted(broker.addresses.items()):
                if advertised not in seen:
                    seen.add(advertised)
                    yield broker_finding(f"{name}:{member}", advertised)


def broker_finding(name: str, address: str) -> Finding:
    """Whether the address that a broker advertises can be reached from here."""
    host, _, port = address.rpartition(":")
    text = f"{name} at {address}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fix = (
            "set brokerIP1 of the broker to an address that this machine reaches, or give the"
            f" option rmq.broker.address.rewrite={address}=HOST:PORT here"
        )
        return Finding("broker", text, fix, reason)
    return Finding("broker", text)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _required(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
