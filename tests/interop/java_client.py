"""Apache RocketMQ's own Java clients, driven from Python.

`JavaClient("5.5.0")` is one Java process that holds any number of producers and consumers of that
version, each under a name that the caller chooses. `call` runs one command of the driver beside
this file; what push consumers receive is collected under their names. The driver's sources are
ours; the client classes come from Maven by coordinates, unmodified.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import urlencode

from tests.interop.maven_artifacts import PeerUnavailable, cache_root, locked, resolved_jars

CLIENT_VERSIONS = ("5.5.0", "4.9.8")
ANSWER_TIMEOUT_S = 90.0
JAVA_RELEASE = 17
BINARY_HEADERS = ("-Drocketmq.serialize.type=ROCKETMQ",)

Row = dict[str, Any]

_SOURCES = Path(__file__).parent / "java_client"
_QUICK_START_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class JavaClientError(Exception):
    """A command failed in the client: `type`, `code` and `text` say how."""

    def __init__(self, op: str, described: Row) -> None:
        self.type: str = described["type"]
        self.code: int | None = described.get("code")
        self.text: str = described["message"]
        self.cause: Row | None = described.get("cause")
        super().__init__(f"{op}: {self.type} {self.code} {self.text}")


class JavaClientGone(Exception):
    """The Java process ended or does not answer."""


def java_tool(name: str) -> str:
    """`java` or `javac`, that of JAVA_HOME first."""
    java_home = os.environ.get("JAVA_HOME")
    in_home = shutil.which(name, path=str(Path(java_home) / "bin")) if java_home else None
    found = in_home or shutil.which(name)
    if found is None:
        raise PeerUnavailable(f"{name} is not installed")
    return found


def compiled_class_path(set_name: str, coordinates: Sequence[str], sources: Path) -> str:
    """Our driver compiled against the peer's jars, once per version of either."""
    jars = resolved_jars(set_name, coordinates)
    files = sorted(sources.glob("*.java"))
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
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            # Not a reason to skip: the driver is ours and must compile against each version.
            raise AssertionError(f"the client driver does not compile: {finished.stderr}")
        output.rename(classes)


def client_class_path(version: str) -> str:
    """Resolves and compiles what is not there yet; raises `PeerUnavailable` if it cannot be had."""
    return compiled_class_path(
        f"rocketmq-client-{version}", [f"org.apache.rocketmq:rocketmq-client:{version}"], _SOURCES
    )


class JavaClient:
    """One Java process with its clients; leave its `with` block or `kill` it at the end."""

    def __init__(
        self, version: str, flags: Sequence[str] = (), *, quick_start: bool = True
    ) -> None:
        self.version = version
        chosen = (*_QUICK_START_FLAGS, *flags) if quick_start else flags
        self._home = tempfile.TemporaryDirectory(prefix="rmq-java-client-")
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._waiting: dict[int, tuple[str, Future[Any]]] = {}
        self._received: dict[str, list[Row]] = defaultdict(list)
        self._stderr = (Path(self._home.name) / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [*self._command(client_class_path(version), chosen), "Scenarios"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name=f"java-client-{self.pid}")
        self._reader.start()

    def _command(self, class_path: str, flags: Sequence[str]) -> list[str]:
        home = self._home.name
        return [
            java_tool("java"),
            # The client keeps logs and the offsets of broadcasting consumers under these.
            f"-Duser.home={home}",
            f"-Drocketmq.client.logRoot={home}",
            f"-Drocketmq.log.root={home}",
            f"-Drocketmq.client.localOffsetStoreDir={home}/offsets",
            "-Drocketmq.client.logLevel=WARN",
            *flags,
            "-cp",
            class_path,
        ]

    def __enter__(self) -> JavaClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def call(self, op: str, **arguments: Any) -> Any:
        """The command's answer; raises `JavaClientError` with what the client raised."""
        return self.begin(op, **arguments).result(ANSWER_TIMEOUT_S)

    def begin(self, op: str, **arguments: Any) -> Future[Any]:
        """The same without waiting: commands run side by side in the process."""
        number = next(self._ids)
        answer: Future[Any] = Future()
        with self._changed:
            self._waiting[number] = (op, answer)
            line = urlencode([("id", number), ("op", op), *_fields(arguments)])
            try:
                stdin = self._process.stdin
                assert stdin is not None
                stdin.write(line.encode() + b"\n")
                stdin.flush()
            except (BrokenPipeError, ValueError):
                del self._waiting[number]
                raise JavaClientGone(self._last_words()) from None
        return answer

    def received(self, consumer: str) -> list[Row]:
        """What this push consumer's listener was given so far, in that order."""
        with self._changed:
            return list(self._received[consumer])

    def wait_received(
        self, consumer: str, reached: int | Callable[[list[Row]], bool], timeout_s: float = 60.0
    ) -> list[Row]:
        """Wait until so many messages came, or until `reached(messages)`; all that came then."""
        messages = self._received[consumer]

        def there() -> bool:
            return len(messages) >= reached if isinstance(reached, int) else reached(messages)

        with self._changed:
            if not self._changed.wait_for(there, timeout_s):
                raise AssertionError(
                    f"{consumer} received only {len(messages)} messages in {timeout_s} s: "
                    f"{[message.get('text') for message in messages[-20:]]}"
                )
            return list(messages)

    def kill(self) -> None:
        """End the process by its id, without any of the clients' own goodbyes."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._stderr.close()
        self._home.cleanup()

    def _read(self) -> None:
        stdout: IO[bytes] | None = self._process.stdout
        assert stdout is not None
        for line in stdout:
            row = json.loads(line)
            with self._changed:
                self._take(row)
                self._changed.notify_all()
        with self._changed:
            for _, answer in self._waiting.values():
                answer.set_exception(JavaClientGone("the Java process ended"))
            self._waiting.clear()

    def _take(self, row: Row) -> None:
        if row.get("event") == "received":
            self._received[row["consumer"]] += map(_with_bytes, row["messages"])
        elif "id" in row:
            op, answer = self._waiting.pop(row["id"])
            if "error" in row:
                answer.set_exception(JavaClientError(op, row["error"]))
            else:
                answer.set_result(_with_bytes(row["done"]))

    def _last_words(self) -> str:
        self._stderr.flush()
        return Path(self._stderr.name).read_bytes()[-2000:].decode(errors="replace")


def _fields(arguments: dict[str, Any]) -> list[tuple[str, Any]]:
    fields: list[tuple[str, Any]] = []
    for name, value in arguments.items():
        if value is None:
            continue
        values = value if isinstance(value, list | tuple) else [value]
        for one in values:
            if isinstance(one, bytes):
                fields.append((name, base64.b64encode(one).decode()))
            else:
                fields.append((name, str(one).lower() if isinstance(one, bool) else one))
    return fields


def _with_bytes(answer: Any) -> Any:
    """Bodies are bytes on this side."""
    if isinstance(answer, list):
        return [_with_bytes(item) for item in answer]
    if isinstance(answer, dict):
        if "messages" in answer:
            return {**answer, "messages": [_with_bytes(item) for item in answer["messages"]]}
        if isinstance(answer.get("body"), str):
            return {**answer, "body": base64.b64decode(answer["body"])}
    return answer
