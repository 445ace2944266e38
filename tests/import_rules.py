"""Import rules: direction of packages, public names, foreign packages, no cycles.

A rule takes one `SourceFile` and yields findings as `path:line: text`. Nothing here touches the
disk, so that `test_architecture.py` can show each rule a planted violation.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

_BASE = frozenset({"errors", "protocol_codes"})
_STORAGE = _BASE | {"config", "codec", "runtime", "storage"}
_REMOTING = _BASE | {"config", "codec", "runtime", "remoting"}
_STORE = _STORAGE | {"flush", "dispatch", "store"}
_SERVERS = frozenset({"broker", "nameserver", "client"})

# Room -> what it may import besides itself. A room is a folder of broker_core or a top module.
ROOMS: Mapping[str, frozenset[str]] = {
    "protocol_codes": frozenset(),
    "errors": frozenset({"protocol_codes"}),
    "config": _BASE | {"codec"},
    "runtime": frozenset(),
    "version": frozenset(),
    "codec": _BASE,
    "storage": _STORAGE - {"storage"},
    "remoting": _REMOTING - {"remoting"},
    "flush": _STORAGE - {"codec"},
    "dispatch": _STORAGE,
    "store": _STORE - {"store"},
    "replication": _STORAGE - {"codec"},
    "access": _REMOTING,
    "nameserver": _REMOTING | {"access"},
    "client": _REMOTING | {"access", "storage"},
    "broker": _STORAGE | _REMOTING | {"access", "replication", "store"},
    "notebook": _BASE | {"codec", "client"},
    "fault_injection": _STORAGE | _REMOTING | {"broker", "nameserver"},
    "embedded": _BASE | {"config", "codec", "fault_injection", "notebook", "runtime"} | _SERVERS,
    "cli": _BASE
    | {"access", "config", "codec", "runtime", "embedded", "store", "version"}
    | {"fault_injection"}
    | _SERVERS,
    "__main__": frozenset({"cli"}),
}

# May be imported where no module does so yet.
EVERYWHERE = _BASE | {"config"}

# An arrow that only some files of the room may follow.
NARROWED: Mapping[tuple[str, str], frozenset[str]] = {
    ("cli", "store"): frozenset({"broker_core/cli/store/check.py"}),
    ("client", "storage"): frozenset(
        {"broker_core/client/push/local_offsets.py", "broker_core/client/sink/staging_file.py"}
    ),
}

# Folders and modules of the broker that every feature may import, and what they may import.
BROKER_GROUND: Mapping[str, frozenset[str]] = {
    "settings": frozenset(),
    "tables": frozenset({"request_fields", "settings"}),
}
# Modules beside `broker.py` that put features together; no feature imports them.
BROKER_COMPOSITION = frozenset({"broker", "upkeep"})

BROKER_FOLDERS = frozenset(
    {
        "admin",
        "clients",
        "metrics",
        "pop",
        "pull",
        "replication",
        "scheduled",
        "security",
        "send",
        "settings",
        "sink",
        "tables",
        "transactions",
    }
)

# A feature of the broker -> another one whose code it uses, and why.
FEATURE_USES: Mapping[tuple[str, str], str] = {
    ("metrics", "pop"): "shows its counters",
    ("metrics", "scheduled"): "shows its counters",
    ("metrics", "sink"): "shows its counters",
    ("metrics", "transactions"): "shows its counters",
    ("pop", "pull"): "a pop passes the checks of a pull",
    ("replication", "scheduled"): "a slave copies the progress of delay levels",
    ("replication", "security"): "connections to other brokers are encrypted and signed",
    ("replication", "sink"): "a slave copies the batches of sinks",
    ("replication", "transactions"): "a slave copies the progress of transactions",
    ("send", "scheduled"): "a send with a delay or a time is stored as a delayed message",
    ("send", "transactions"): "the send of a transaction is stored as a half message",
    ("transactions", "scheduled"): "a committed message may have a delay",
}

SPARK_SHELLS = frozenset(
    {
        "pyspark_rmq/data_source.py",
        "pyspark_rmq/environment/session.py",
        "pyspark_rmq/notebook/live_progress.py",
        "pyspark_rmq/payloads/variant/spark_variants.py",
        "pyspark_rmq/progress.py",
        "pyspark_rmq/source/batch_reader.py",
        "pyspark_rmq/source/stream_reader.py",
        "pyspark_rmq/sink/batch_writer.py",
        "pyspark_rmq/sink/task/commit_message.py",
        "pyspark_rmq/sink/stream_writer.py",
        "pyspark_rmq/sink/task/context.py",
    }
)

# Code that uses Spark as users do.
SPARK_USERS = (
    "pyspark_rmq/prove/driver.py",
    "pyspark_rmq/testing/",
    "tests/",
    "examples/",
    "benchmarks/",
)

# The only files that reach the disk.
OS_SEAM = (
    "broker_core/storage/files/posix_file_system.py",
    "broker_core/storage/files/record_locks.py",
)

# Looks at processes and waits for them; touches no data.
PROCESS_SEAM = "broker_core/embedded/process_identity.py"

# Foreign top-level package -> (tree it is ruled in, files or folders of that tree that may use it).
CONFINED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "mmap": ("broker_core/", OS_SEAM),
    "fcntl": ("broker_core/", (*OS_SEAM, PROCESS_SEAM)),
    "pathlib": (
        "broker_core/",
        (
            "broker_core/access/credentials.py",
            "broker_core/broker/settings/property_file.py",
            "broker_core/remoting/tls/certificate_watch.py",
            "broker_core/storage/files/posix_file_system.py",
            "broker_core/store/message_store.py",
            "broker_core/embedded/",
            "broker_core/cli/",
        ),
    ),
    "shutil": ("broker_core/", ()),
    "tempfile": (
        "broker_core/",
        ("broker_core/embedded/", "broker_core/cli/servers/standalone.py"),
    ),
    # The broker never starts a process; the embedded one is a process of its own.
    "subprocess": ("broker_core/", ("broker_core/embedded/",)),
    "multiprocessing": ("broker_core/", ()),
    "pyarrow": (
        "broker_core/",
        ("broker_core/codec/records/arrow_columns.py", "broker_core/notebook/tables.py"),
    ),
    "prometheus_client": ("broker_core/", ("broker_core/broker/metrics/text.py",)),
    "pyspark": ("", (*sorted(SPARK_SHELLS), *SPARK_USERS)),
    "py4j": ("", ("pyspark_rmq/notebook/live_progress.py", "tests/")),
}

# The byte layer: no I/O, no clock, no logging, no waiting.
CODEC_NEVER = frozenset(
    {"asyncio", "datetime", "io", "logging", "random", "selectors", "socket", "threading"}
)

# Names of `os` that tell something about the process and touch no file.
OS_PROCESS_FACTS = frozenset(
    {
        "PathLike",
        "cpu_count",
        "environ",
        "getenv",
        "geteuid",
        "get_terminal_size",
        "getpid",
        "getppid",
        "strerror",
        "sysconf",
        "urandom",
    }
)


def circles(uses: Mapping[str, Collection[str]]) -> set[str]:
    """Names that reach themselves through what they use, or that use such a name."""
    left = {name: set(used) for name, used in uses.items()}
    while floor := {name for name, used in left.items() if not used & left.keys()}:
        left = {name: used for name, used in left.items() if name not in floor}
    return set(left)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For what makes many objects that stay a while, as syntax trees do: a third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class SourceFile:
    """One Python source: its path inside the project and its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def module(self) -> str:
        """Dotted name: `broker_core/codec/__init__.py` is `broker_core.codec`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def finding(self, node: ast.AST | int, text: str) -> str:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path}:{line}: {text}"

    def imports(self) -> Iterator[tuple[int, str, str]]:
        """Every import as (line, module, name); name is "" for `import module`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name, ""
            elif isinstance(node, ast.ImportFrom):
                base = self._base_of(node)
                for alias in node.names:
                    yield node.lineno, base, alias.name

    def _base_of(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        package = self.module.split(".")
        drop = node.level - 1 if self.path.endswith("__init__.py") else node.level
        package = package[: len(package) - drop]
        return ".".join([*package, node.module] if node.module else package)


Rule = Callable[[SourceFile], Iterator[str]]


def _room_of(module: str, name: str = "") -> str:
    """The room that an import reaches; "" for the package root and for foreign modules."""
    parts = module.split(".")
    if parts[0] != "broker_core":
        return ""
    if len(parts) > 1:
        return parts[1]
    return name if name in ROOMS else ""


def import_direction(file: SourceFile) -> Iterator[str]:
    """Packages import downwards only, and no module imports `broker_core` itself."""
    if not file.path.startswith("broker_core/") or file.path == "broker_core/__init__.py":
        return
    room = _room_of(file.module)
    if room not in ROOMS:
        yield file.finding(1, f"room {room!r} is not in the table of tests/import_rules.py")
        return
    for line, module, name in file.imports():
        if module.split(".")[0] == "pyspark_rmq":
            yield file.finding(line, "broker_core never imports pyspark_rmq")
        if module.split(".")[0] != "broker_core":
            continue
        target = _room_of(module, name)
        if target == "":
            yield file.finding(line, "a room must not import the package's own public names")
        elif target != room and target not in ROOMS[room]:
            yield file.finding(line, f"{room} must not import {target}")
        elif file.path not in NARROWED.get((room, target), {file.path}):
            yield file.finding(line, f"only some files of {room} may import {target}")


def feature_imports(file: SourceFile) -> Iterator[str]:
    """A feature of the broker uses shared modules, and other features only as declared."""
    for line, target in broker_imports(file):
        owner = file.module.split(".")[2]
        is_folder = file.module.count(".") > 2
        if owner in BROKER_COMPOSITION or target == owner:
            continue
        if target in BROKER_COMPOSITION:
            yield file.finding(line, f"{target} puts features together; they never import it")
        elif owner in BROKER_GROUND:
            if target not in BROKER_GROUND[owner]:
                yield file.finding(line, f"{owner} is below the features and {target}")
        elif target not in BROKER_FOLDERS or target in BROKER_GROUND:
            continue
        elif not is_folder:
            yield file.finding(line, f"a module that features share must not import {target}")
        elif (owner, target) not in FEATURE_USES:
            yield file.finding(line, f"{owner} must not import {target}: declare it or move code")


def broker_imports(file: SourceFile) -> Iterator[tuple[int, str]]:
    """Imports inside the broker's room as (line, folder or module)."""
    if not file.path.startswith("broker_core/broker/") or file.path.count("/") < 2:
        return
    for line, module, name in file.imports():
        parts = [*module.split("."), name]
        if parts[:2] == ["broker_core", "broker"] and len(parts) > 2 and parts[2]:
            yield line, parts[2]


def public_names(door: SourceFile) -> frozenset[str]:
    """The keys of `_PUBLIC` in a package's `__init__.py`."""
    for node in door.tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "_PUBLIC" for target in targets):
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def connector_uses_public_names(file: SourceFile, public: Iterable[str]) -> Iterator[str]:
    """pyspark_rmq reaches broker_core through its public names only."""
    if not file.path.startswith("pyspark_rmq/"):
        return
    public = frozenset(public) | {"__version__"}
    for line, module, name in file.imports():
        parts = module.split(".")
        if parts[0] != "broker_core":
            continue
        if len(parts) > 1 or (name and name not in public):
            yield file.finding(line, f"{module} {name}".strip() + " is not a public name")
    for node in file.nodes:
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "broker_core"
            and node.attr not in public | {"__version__"}
        ):
            yield file.finding(node, f"broker_core.{node.attr} is not a public name")


def foreign_imports(file: SourceFile) -> Iterator[str]:
    """Disk, processes, time, Arrow and Spark each enter through the files that own them."""
    for line, module, _ in file.imports():
        top = module.split(".")[0]
        tree, allowed = CONFINED.get(top, ("\0", ()))
        if file.path.startswith(tree) and not file.path.startswith(allowed or ("\0",)):
            yield file.finding(line, f"{top} may not be imported here")
        if file.path.startswith("broker_core/codec/") and top in CODEC_NEVER:
            yield file.finding(line, f"the byte layer never imports {top}")


def data_through_the_seam(file: SourceFile) -> Iterator[str]:
    """Only the file-system modules open files; elsewhere `os` is used for facts about the
    process."""
    if not file.path.startswith("broker_core/") or file.path in (*OS_SEAM, PROCESS_SEAM):
        return
    for node in file.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in {"os", "posix"} and (
                    alias.asname or "." in alias.name
                ):
                    yield file.finding(node, "import os under its own name only")
        elif isinstance(node, ast.ImportFrom) and node.module in {"os", "os.path", "posix"}:
            for alias in node.names:
                if node.module != "os" or alias.name not in OS_PROCESS_FACTS:
                    yield file.finding(node, f"{node.module}.{alias.name} belongs to {OS_SEAM[0]}")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os" and node.attr not in OS_PROCESS_FACTS:
                yield file.finding(node, f"os.{node.attr} belongs to {OS_SEAM[0]}")
            if node.value.id == "io" and node.attr in {"open", "FileIO", "open_code"}:
                yield file.finding(node, f"io.{node.attr} belongs to {OS_SEAM[0]}")
        elif isinstance(node, ast.Name) and node.id == "open":
            yield file.finding(node, f"open() belongs to {OS_SEAM[0]}")


def import_cycles(files: Iterable[SourceFile]) -> list[str]:
    """Modules that import each other, found by peeling off everything that imports nothing left."""
    by_module = {file.module: file for file in files}
    edges: dict[str, set[str]] = {}
    for module, file in by_module.items():
        reached = {f"{base}.{name}" for _, base, name in file.imports()}
        reached = {
            target if target in by_module else target.rpartition(".")[0] for target in reached
        }
        edges[module] = (reached & by_module.keys()) - {module}
    while leaves := {module for module, targets in edges.items() if not targets}:
        edges = {m: targets - leaves for m, targets in edges.items() if m not in leaves}
    return [
        f"{by_module[module].path}:1: imports itself through {sorted(targets)}"
        for module, targets in sorted(edges.items())
    ]
