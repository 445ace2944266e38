"""Apache RocketMQ's own message store, driven from Python.

`JavaStore("5.5.0")` lists what the real store finds in a directory (`dump`, `query`, `offset_at`),
writes directories (`write`), and appends against the clock (`append_rounds`). `StoreSession` is
one Java process for finer control. Owns the process and the compiled driver in the peer cache;
the Java source beside this file is ours, the store classes come from Maven by coordinates.

Lines of a script (`write`) or commands of a session (`perform`), all but the first fields optional:

    op     fields
    put    topic, body (bytes), queue_id, tags, keys (joined by spaces), unique_key, properties
           (mapping, order kept), properties_string (verbatim, instead of the former five), flag,
           sys_flag, born_timestamp_ms, born_host, store_host ("ip:port"), delay_level,
           reconsume_times, prepared_transaction_position
    batch  topic, messages (list of body, tags, keys, unique_key, properties, flag), queue_id,
           sys_flag, born_timestamp_ms, born_host, store_host
    flush | await_dispatch | sleep (ms) | kill

The store takes the store timestamp from its own clock; nothing else is invented by the driver
except hosts (127.0.0.1, ports 20000 born and 10911 store) and the born time (now).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tests.interop.maven_artifacts import PeerUnavailable, cache_root, locked, resolved_jars
from tests.interop.server_processes import MEASURING_FLAGS

VERSIONS = ("4.9.8", "5.5.0")
ANSWER_TIMEOUT_S = 120
MEASURING_TIMEOUT_S = 900
JAVA_RELEASE = 17
QUERY_COUNT_MAX = 64

Row = dict[str, Any]

_DRIVER_SOURCES = Path(__file__).parent / "java"
# The store unmaps files and reads page-cache state through internals that Java 17 keeps closed.
_MODULE_FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
)
_QUICK_START_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class JavaStoreError(Exception):
    """The Java side answered with an error, or its process ended or hung."""


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """File sizes; both sides must use the same ones. The defaults keep test stores small."""

    log_file_size: int = 64 * 1024
    queue_file_size: int = 100 * 20
    index_slot_count: int = 100
    index_entry_count_max: int = 400

    def as_config(self) -> dict[str, int]:
        return {
            "mappedFileSizeCommitLog": self.log_file_size,
            "mappedFileSizeConsumeQueue": self.queue_file_size,
            "maxHashSlotNum": self.index_slot_count,
            "maxIndexNum": self.index_entry_count_max,
        }


SMALL_LAYOUT = StoreLayout()
DEFAULT_LAYOUT = StoreLayout(1 << 30, 300_000 * 20, 5_000_000, 20_000_000)


class Listing(NamedTuple):
    """What the store serves: messages ordered by topic, queue and offset; one row per queue."""

    messages: list[Row]
    queues: list[Row]
    min_position: int
    max_position: int


class JavaStore:
    """The store classes of one RocketMQ version. Cheap to create; resolves jars on first use."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._unavailable: str | None = None
        self._class_path: str | None = None

    def available(self) -> str | None:
        """None if it can run here, else the reason, for `pytest.skip`. The answer is remembered."""
        if self._class_path is None and self._unavailable is None:
            try:
                self._class_path = _class_path(self.version)
            except PeerUnavailable as missing:
                self._unavailable = f"RocketMQ store {self.version}: {missing}"
        return self._unavailable

    def session(
        self,
        jvm_flags: Sequence[str] = _QUICK_START_FLAGS,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> StoreSession:
        """A fresh Java process; close it by leaving its `with` block."""
        reason = self.available()
        if reason is not None or self._class_path is None:
            raise PeerUnavailable(reason)
        return StoreSession(self._class_path, jvm_flags, answer_timeout_s)

    @contextlib.contextmanager
    def opened(
        self,
        root: Path,
        layout: StoreLayout = SMALL_LAYOUT,
        config: Mapping[str, Any] | None = None,
        *,
        in_place: bool = True,
    ) -> Iterator[StoreSession]:
        """Java has `root` open (recovered, dispatched) inside the block and shuts down after it.

        With `in_place=False` it works on a copy, since opening alone already writes: `abort`,
        checkpoint, truncation, and 5.x adds folders of its own.
        """
        with contextlib.ExitStack() as stack:
            if not in_place:
                copy = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-store-copy-"))
                root = Path(shutil.copytree(root, Path(copy) / "store"))
            session = stack.enter_context(self.session())
            session.open(root, layout, config)
            yield session
            # A clean shutdown takes the store seconds, and a copy goes away in any case.
            if in_place and session.store_is_open:
                session.close_store()

    def write(
        self,
        root: Path,
        script: Iterable[Mapping[str, Any]],
        layout: StoreLayout = SMALL_LAYOUT,
        config: Mapping[str, Any] | None = None,
    ) -> list[Row]:
        """Runs the script's lines and shuts the store down; the answers in order.

        A line `{"op": "kill"}` ends the process on the spot instead and leaves an unclean store.
        Every put must be accepted.
        """
        answers = []
        with self.opened(root, layout, config) as session:
            for line in script:
                if line["op"] == "kill":
                    session.kill()
                    break
                _, done = session.perform(**line)
                if done.get("status", "PUT_OK") != "PUT_OK":
                    raise JavaStoreError(f"{line['op']} answered {done['status']}: {line}")
                answers.append(done)
        return answers

    def dump(
        self,
        root: Path,
        layout: StoreLayout = SMALL_LAYOUT,
        config: Mapping[str, Any] | None = None,
        *,
        in_place: bool = False,
    ) -> Listing:
        """Every message of every queue, as the real store serves it after its own recovery."""
        with self.opened(root, layout, config, in_place=in_place) as session:
            return session.dump()

    def query(
        self,
        root: Path,
        lookups: Iterable[Mapping[str, Any]],
        layout: StoreLayout = SMALL_LAYOUT,
        config: Mapping[str, Any] | None = None,
    ) -> list[list[Row]]:
        """Per lookup (topic, key; maybe begin_ms, end_ms, count_max) the messages found."""
        with self.opened(root, layout, config, in_place=False) as session:
            return [session.query(**lookup) for lookup in lookups]

    def offsets_at(
        self,
        root: Path,
        lookups: Iterable[tuple[str, int, int]],
        layout: StoreLayout = SMALL_LAYOUT,
        config: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Per (topic, queue id, timestamp in ms) the queue offset found by time."""
        with self.opened(root, layout, config, in_place=False) as session:
            return [session.offset_at(*lookup) for lookup in lookups]

    def append_rounds(
        self,
        root: Path,
        *,
        body_size: int,
        message_count: int,
        batch_count: int,
        rounds: int,
        warmup_count: int,
        config: Mapping[str, Any] | None = None,
    ) -> list[Row]:
        """Times appends of equal messages into a store with default file sizes and ASYNC_FLUSH.

        A `batch_count` of 1 uses putMessage, any other putMessages. Each round's row has
        message_count, body_bytes, record_bytes, append_seconds and dispatched_seconds. The process
        is killed at the end: the store is not needed, and its last flush would take long.
        """
        with self.session(MEASURING_FLAGS, MEASURING_TIMEOUT_S) as session:
            session.open(root, DEFAULT_LAYOUT, config)
            rows, _ = session.perform(
                "bench",
                body_size=body_size,
                message_count=message_count,
                batch_count=batch_count,
                rounds=rounds,
                warmup_count=warmup_count,
            )
        return rows


class StoreSession:
    """One Java process that holds at most one store open at a time."""

    def __init__(self, class_path: str, jvm_flags: Sequence[str], answer_timeout_s: float) -> None:
        self.store_is_open = False
        self._answer_timeout_s = answer_timeout_s
        self._home = tempfile.TemporaryDirectory(prefix="rmq-java-home-")
        self._stderr = (Path(self._home.name) / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [*_java_command(class_path, jvm_flags, self._home.name), "StoreDriver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )

    def __enter__(self) -> StoreSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            # Also after an error: a store left open stays unclean, as after a crash.
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait(self._answer_timeout_s)
        self._stderr.close()
        self._home.cleanup()

    def open(
        self,
        root: Path,
        layout: StoreLayout = SMALL_LAYOUT,
        config: Mapping[str, Any] | None = None,
    ) -> Row:
        """Load, recover, start, wait for dispatch. `config`: MessageStoreConfig field → value."""
        settings = {**layout.as_config(), **(config or {})}
        _, done = self.perform("open", root=str(Path(root).absolute()), config=settings)
        self.store_is_open = True
        return done

    def close_store(self) -> None:
        self.perform("close")
        self.store_is_open = False

    def kill(self) -> None:
        """Ends the Java process without shutdown, flush or hooks."""
        self._send({"op": "kill"})
        self._process.wait(self._answer_timeout_s)
        self.store_is_open = False

    def dump(self) -> Listing:
        rows, done = self.perform("dump")
        messages = [row for row in rows if row["row"] == "message"]
        queues = [row for row in rows if row["row"] == "queue"]
        return Listing(messages, queues, done["min_position"], done["max_position"])

    def query(self, topic: str, key: str, **limits: int) -> list[Row]:
        """By key; `limits`: begin_ms, end_ms, count_max (the store itself stops at 64)."""
        request = {"count_max": QUERY_COUNT_MAX, **limits}
        rows, _ = self.perform("query", topic=topic, key=key, **request)
        return rows

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        _, done = self.perform("time", topic=topic, queue_id=queue_id, timestamp_ms=timestamp_ms)
        return int(done["queue_offset"])

    def perform(self, op: str, **arguments: Any) -> tuple[list[Row], Row]:
        """One command: its rows and its closing line. Bodies are bytes on this side."""
        watchdog = threading.Timer(self._answer_timeout_s, self._process.kill)
        watchdog.start()
        try:
            self._send({"op": op, **arguments})
            return self._answer(op)
        finally:
            watchdog.cancel()
            watchdog.join()

    def _send(self, command: Row) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command, default=_base64).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(command["op"]) from None

    def _answer(self, op: str) -> tuple[list[Row], Row]:
        assert self._process.stdout is not None
        rows: list[Row] = []
        for line in self._process.stdout:
            answer = json.loads(line)
            if "error" in answer:
                raise JavaStoreError(f"{op}: {answer['error']}")
            if "done" in answer:
                return rows, answer
            if "body" in answer:
                answer["body"] = base64.b64decode(answer["body"])
            rows.append(answer)
        raise self._ended(op)

    def _ended(self, op: str) -> JavaStoreError:
        code = self._process.wait(self._answer_timeout_s)
        self._stderr.seek(0)
        last_words = self._stderr.read()[-2000:].decode(errors="replace")
        return JavaStoreError(f"{op}: the Java process ended with code {code}: {last_words}")


def _base64(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be sent to the store driver")


def _java_command(class_path: str, jvm_flags: Sequence[str], home: str) -> list[str]:
    return [
        _java_tool("java"),
        *jvm_flags,
        *_MODULE_FLAGS,
        f"-Duser.home={home}",
        f"-Djava.io.tmpdir={home}",
        f"-Drocketmq.log.root={home}",
        # 4.9 takes these from system properties only; a fuller test disk must not change results.
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
        "-cp",
        class_path,
    ]


def _java_tool(name: str) -> str:
    java_home = os.environ.get("JAVA_HOME")
    in_home = shutil.which(name, path=str(Path(java_home) / "bin")) if java_home else None
    found = in_home or shutil.which(name)
    if found is None:
        raise PeerUnavailable(f"{name} is not installed")
    return found


def _require_java_release() -> None:
    command = [_java_tool("java"), "-version"]
    text = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=ANSWER_TIMEOUT_S
    ).stderr
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found[1]) < JAVA_RELEASE:
        said = (text.splitlines() or ["nothing"])[0]
        raise PeerUnavailable(
            f"Java {JAVA_RELEASE} or newer is needed, `java -version` says: {said}"
        )


def _class_path(version: str) -> str:
    """Resolves and compiles what is not in the cache yet."""
    _require_java_release()
    set_name = f"rocketmq-store-{version}"
    jars = resolved_jars(set_name, [f"org.apache.rocketmq:rocketmq-store:{version}"])
    sources = sorted(_DRIVER_SOURCES.glob("*.java"))
    digest = hashlib.sha256(str(JAVA_RELEASE).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    directory = cache_root() / set_name
    classes = directory / f"driver-{digest.hexdigest()[:16]}"
    with locked(directory):
        if not classes.is_dir():
            _compile(sources, jars, classes)
    return f"{classes}{os.pathsep}{jars}/*"


def _compile(sources: Sequence[Path], jars: Path, classes: Path) -> None:
    compiler = _java_tool("javac")
    with tempfile.TemporaryDirectory(dir=classes.parent, prefix="compiling-") as work:
        output = Path(work) / "classes"
        finished = subprocess.run(
            [compiler, "-nowarn", "--release", str(JAVA_RELEASE), "-cp", f"{jars}/*",
             "-d", str(output), *map(str, sources)],
            capture_output=True, text=True, check=False, timeout=ANSWER_TIMEOUT_S,
        )  # fmt: skip
        if finished.returncode != 0:
            # Not a reason to skip: the driver is ours and must compile against each version.
            raise JavaStoreError(f"the store driver does not compile: {finished.stderr}")
        output.rename(classes)
