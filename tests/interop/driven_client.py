"""Real clients of any language, driven from Python: one process, many producers and consumers.

A `DrivenClient` is a process that holds clients of one library and version, each under a name that
the caller chooses. `call` runs one command of the driver program; what push consumers receive is
collected under their names. Commands are form-encoded lines, answers JSON lines, the same for
every language. The drivers are ours; the libraries come from their registries, unmodified.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar
from urllib.parse import urlencode

# A stream of 20,000 sends, one after the other, to a broker that shares two cores with many others.
ANSWER_TIMEOUT_S = 300.0

Row = dict[str, Any]
Self = TypeVar("Self", bound="DrivenClient")


class ClientError(Exception):
    """A command failed in the client: `type`, `code` and `text` say how."""

    def __init__(self, op: str, described: Row) -> None:
        self.type: str = described["type"]
        self.code: int | None = described.get("code")
        self.text: str = described["message"]
        self.cause: Row | None = described.get("cause")
        super().__init__(f"{op}: {self.type} {self.code} {self.text}")


class ClientGone(Exception):
    """The process ended or does not answer."""


class DrivenClient:
    """One process with its clients; leave its `with` block or `kill` it at the end."""

    # "Java", "Go" or "Node".
    language = ""

    def __init__(self, version: str, environment: Mapping[str, str] | None = None) -> None:
        self.version = version
        self._home = tempfile.TemporaryDirectory(prefix="rmq-driven-client-")
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        # Not `_changed`: a process that is busy writing reads no commands until its rows are taken.
        self._writing = threading.Lock()
        self._waiting: dict[int, tuple[str, Future[Any]]] = {}
        self._received: dict[str, list[Row]] = defaultdict(list)
        self._stderr = (Path(self._home.name) / "stderr").open("w+b")
        try:
            self._process = subprocess.Popen(
                self._command(self._home.name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **(environment or {})},
            )
        except BaseException:
            self._stderr.close()
            self._home.cleanup()
            raise
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name=f"client-{self.pid}")
        self._reader.start()

    @property
    def name(self) -> str:
        """As the compatibility page calls this client."""
        return f"{self.language} {self.version}"

    def _command(self, home: str) -> list[str]:
        """The process to start; what the library keeps on disk belongs under `home`."""
        raise NotImplementedError

    def another(self: Self) -> Self:
        """A second process of the same kind, to be killed by the caller."""
        return type(self)(self.version)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def call(self, op: str, **arguments: Any) -> Any:
        """The command's answer; raises `ClientError` with what the client raised."""
        return self.begin(op, **arguments).result(ANSWER_TIMEOUT_S)

    def begin(self, op: str, **arguments: Any) -> Future[Any]:
        """The same without waiting: commands run side by side in the process."""
        number = next(self._ids)
        answer: Future[Any] = Future()
        line = urlencode([("id", number), ("op", op), *_fields(arguments)])
        with self._changed:
            self._waiting[number] = (op, answer)
        try:
            stdin = self._process.stdin
            assert stdin is not None
            with self._writing:
                stdin.write(line.encode() + b"\n")
                stdin.flush()
        except (BrokenPipeError, ValueError):
            with self._changed:
                self._waiting.pop(number, None)
            raise ClientGone(self._last_words()) from None
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
        self._process.wait(ANSWER_TIMEOUT_S)
        self._reader.join(ANSWER_TIMEOUT_S)
        assert not self._reader.is_alive(), "somebody else holds the output of a killed client"
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
            try:
                row = json.loads(line)
            except ValueError:
                # A warning of the runtime below the driver, not an answer.
                self._stderr.write(line)
                continue
            with self._changed:
                self._take(row)
                self._changed.notify_all()
        with self._changed:
            for _, answer in self._waiting.values():
                answer.set_exception(ClientGone(f"the process ended: {self._last_words()}"))
            self._waiting.clear()

    def _take(self, row: Row) -> None:
        if row.get("event") == "received":
            self._received[row["consumer"]] += map(_with_bytes, row["messages"])
        elif "id" in row:
            op, answer = self._waiting.pop(row["id"])
            if "error" in row:
                answer.set_exception(ClientError(op, row["error"]))
            else:
                answer.set_result(_with_bytes(row["done"]))

    def _last_words(self) -> str:
        if self._stderr.closed:
            return "it was killed"
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
