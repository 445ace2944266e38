"""Rules on a source file by itself: sizes, names, and calls that this project does not make.

As in `import_rules.py`, a rule takes one `SourceFile` and yields findings as `path:line: text`.
An exception to a rule is an entry of its allow-list with the reason beside it.
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.import_rules import SourceFile

FILE_LINES_MAX = 800
C_LINES_MAX = 1_000
FOLDER_FILES_MAX = 16
FUNCTION_LINES_MAX = 80
MEDIAN_LINES_MAX = 200
# Where a folder has at most FOLDER_FILES_MAX files.
SMALL_FOLDERS = ("broker_core/", "pyspark_rmq/", "benchmarks/", "examples/", "tools/")

BANNED_NAME_PARTS = frozenset(
    {"common", "helper", "helpers", "impl", "manager", "managers", "misc", "util", "utils"}
)

# Modules that run what they read; a message, a file or an option is never run.
BANNED_MODULES = frozenset(
    {"cloudpickle", "ctypes", "dill", "joblib", "jsonpickle", "marshal", "pickle", "shelve", "yaml"}
)
# Names of `time` that read a clock; the others only convert a time that is given.
CLOCK_READERS = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}
)
BANNED_CALLS = frozenset({"eval", "exec", "__import__"})

# Methods of named tuples; their underscore only keeps them apart from fields.
NAMED_TUPLE_NAMES = frozenset({"_asdict", "_field_defaults", "_fields", "_make", "_replace"})

# Path -> why this file may use private names of another module.
MAY_USE_PRIVATE: Mapping[str, str] = {
    "pyspark_rmq/environment/session.py": "the environment of Spark's JVM has no public name",
    "pyspark_rmq/prove/driver.py": "the process id of Spark's JVM has no public name",
}

# File or folder -> why its code may keep a form of its own (`# fmt: skip`).
MAY_SKIP_FORMAT: Mapping[str, str] = {
    "broker_core/cli/": "rows of output and options of a command, one line each",
    "broker_core/codec/reference/": "fields are grouped as in the C code",
    "pyspark_rmq/source/description.py": "a row of output",
    "pyspark_rmq/source/rows/message_batches.py": "one maker for each column",
}

# Packages whose constructors name and type every argument.
TYPED_WIRING = tuple(
    f"broker_core/{room}/"
    for room in (
        *("access", "broker", "codec", "dispatch", "flush", "nameserver", "remoting"),
        *("replication", "runtime", "storage", "store"),
    )
)

# Path -> why this file may set names or attributes by text.
MAY_SET_BY_NAME: Mapping[str, str] = {
    "broker_core/__init__.py": "public names are imported on first use",
    "broker_core/codec/native/__init__.py": "chooses all functions at once, compiled or Python",
    "pyspark_rmq/__init__.py": "public names are imported on first use",
    "pyspark_rmq/payloads/protobuf/encoding.py": "fields of a protobuf message are attributes",
}

# File or folder -> why its code may give functions to other objects by assignment.
MAY_BIND_LATE: Mapping[str, str] = {
    "broker_core/fault_injection/": "faults begin and end while the broker serves",
    "broker_core/remoting/limits/unauthenticated_limits.py": "lifted after authentication",
}

# Path -> why this file may name what no other may.
MAY_NAME_THEM: Mapping[str, str] = {
    "tests/broker/test_planted_code.py": "plants pickles and checks that none of them runs",
    "tests/pyspark_rmq/test_pickles.py": "inspects what Spark would read",
}

# Path -> why this file may sleep for real.
MAY_SLEEP: Mapping[str, str] = {
    "broker_core/runtime/clock.py": "all other modules of the package sleep through it",
    "pyspark_rmq/source/retry.py": "the same for the connector, which imports public names only",
}

# Path -> why this file may catch everything.
MAY_CATCH_ALL: Mapping[str, str] = {
    "benchmarks/measuring/parts.py": "a part that failed is noted, and the others still count",
    "benchmarks/report.py": "a page that cannot be written yet must not end the measuring",
    "broker_core/fault_injection/control.py": "the owner waits for an answer to every request",
    "broker_core/broker/send/hooks.py": "the message is stored; what a hook raises is logged",
    "broker_core/client/push/listener_call.py": "any error of a user's listener means redelivery",
    "broker_core/remoting/request_dispatch.py": "the one place that turns exceptions into answers",
    "broker_core/runtime/worker.py": "hands a job's failure to its owner, who raises it",
    "pyspark_rmq/prove/__main__.py": "any failure of the harness has its own exit code",
    "pyspark_rmq/source/rows/local_reader.py": "falls back to the network after any failure",
    "setup.py": "compilers fail in many ways, and the package works without compiled code",
}

MAY_PRINT = ("broker_core/cli/", "examples/", "tools/", "benchmarks/")

# Spelled in pieces, or this file would find itself.
_MACHINE_TOPS = "|".join(("Users", "home", "root", "tmp", "work"))
_FORMAT_MARK = re.compile(r"#\s*fmt:\s*(?:skip|off)")
_MACHINE_PATH = re.compile(rf"(?<![\w.~$}}\-])/(?:{_MACHINE_TOPS})/")


def file_length(path: str, text: str) -> Iterator[str]:
    """A file past the ceiling usually holds two."""
    lines = len(text.splitlines())
    ceiling = C_LINES_MAX if path.endswith((".c", ".h")) else FILE_LINES_MAX
    if lines > ceiling:
        yield f"{path}:{lines}: {lines} lines, at most {ceiling}"


def folder_size(paths: Iterable[str]) -> Iterator[str]:
    """A folder shows its subject at a glance. Tests have as many files as they need."""
    counts = Counter(
        PurePosixPath(path).parent.as_posix()
        for path in paths
        if path.startswith(SMALL_FOLDERS) and path.endswith((".py", ".c", ".h", ".sh"))
    )
    for folder, count in counts.items():
        if count > FOLDER_FILES_MAX:
            yield f"{folder}:1: {count} files, at most {FOLDER_FILES_MAX}"


def function_length(file: SourceFile) -> Iterator[str]:
    """A function fits on a screen. What only connects objects may be longer."""
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name in {"__init__", "build"}:
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                text = f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
                yield file.finding(node, text)


def median_length(files: Iterable[SourceFile]) -> float:
    """Median line count of the modules that are more than a package marker."""
    counts = [len(f.text.splitlines()) for f in files if not f.path.endswith("__init__.py")]
    return statistics.median(counts) if counts else 0.0


def file_name(path: str) -> Iterator[str]:
    """A file name says what is inside; these names do not."""
    for part in PurePosixPath(path).with_suffix("").parts:
        banned = BANNED_NAME_PARTS.intersection(part.lower().split("_"))
        if banned:
            yield f"{path}:1: {part!r} names no thing ({', '.join(sorted(banned))})"


def module_docstring(file: SourceFile) -> Iterator[str]:
    """Each module opens with what it is; an empty package marker has nothing to say."""
    if file.text.strip() and not ast.get_docstring(file.tree):
        yield file.finding(1, "the module has no docstring")


def no_real_sleep(file: SourceFile) -> Iterator[str]:
    """Code and tests wait for a clock that they were given, or for a watermark."""
    if (
        not file.path.startswith(("broker_core/", "pyspark_rmq/", "tests/"))
        or file.path in MAY_SLEEP
    ):
        return
    for line, module, name in file.imports():
        if (module, name) in {("time", "sleep"), ("asyncio", "sleep")}:
            yield file.finding(line, f"{module}.sleep is not imported by name")
    for node in file.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = node.func.value
        if node.func.attr != "sleep" or not isinstance(owner, ast.Name):
            continue
        # asyncio.sleep(0) only lets others run.
        yields_only = (
            bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
        )
        if owner.id == "time" or (owner.id == "asyncio" and not yields_only):
            yield file.finding(node, f"{owner.id}.sleep: advance a clock or await a watermark")


def no_disguised_sleep(file: SourceFile) -> Iterator[str]:
    """A wait for a future that is never completed is a sleep: use the one of the clock."""
    if not file.path.startswith(("broker_core/", "pyspark_rmq/")):
        return
    for scope in file.nodes:
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(scope))
        for node in inside:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if not (
                isinstance(target, ast.Name) and ast.unparse(node.value).endswith("create_future()")
            ):
                continue
            loads = [n for n in inside if isinstance(n, ast.Name) and n.id == target.id]
            waits = [n for n in inside if isinstance(n, ast.Call) and _waits_for(n, target.id)]
            if waits and len(loads) - 1 == len(waits):
                yield file.finding(node, f"{target.id} is never completed: sleep instead")


def _waits_for(call: ast.Call, name: str) -> bool:
    return ast.unparse(call.func) in {"asyncio.wait", "asyncio.wait_for"} and name in {
        node.id for node in ast.walk(call) if isinstance(node, ast.Name)
    }


def no_code_from_data(file: SourceFile) -> Iterator[str]:
    """Nothing turns data into code."""
    if file.path in MAY_NAME_THEM:
        return
    for line, module, _ in file.imports():
        if module.split(".")[0] in BANNED_MODULES:
            yield file.finding(line, f"{module} is not used in this project")
    for node in file.nodes:
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            yield file.finding(node, f"{node.func.id}() is not used in this project")
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and not _is_false(keyword.value):
                yield file.finding(node, "allow_pickle stays off")


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def no_blind_except(file: SourceFile) -> Iterator[str]:
    """Catch what you can name. A handler that ends by raising again hides nothing."""
    if file.path in MAY_CATCH_ALL:
        return
    for node in file.nodes:
        if not isinstance(node, ast.ExceptHandler) or not _catches_all(node.type):
            continue
        last = node.body[-1]
        if not (isinstance(last, ast.Raise) and last.exc is None):
            yield file.finding(node, "catches everything and does not raise it again")


def _catches_all(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(k, ast.Name) and k.id in {"Exception", "BaseException"} for k in kinds)


def no_private_access(file: SourceFile) -> Iterator[str]:
    """A name with an underscore belongs to the module that defines it."""
    if not file.path.startswith(("broker_core/", "pyspark_rmq/")) or file.path in MAY_USE_PRIVATE:
        return
    for line, module, name in file.imports():
        if module.split(".")[0] in {"broker_core", "pyspark_rmq"} and _is_private(name):
            yield file.finding(line, f"{name} is private to {module}")
    own = _defined_names(file)
    for node in file.nodes:
        if isinstance(node, ast.Call) and _reads_private(node):
            yield file.finding(node, f"{ast.unparse(node)} reads a private name")
        if not isinstance(node, ast.Attribute) or not _is_private(node.attr):
            continue
        owner = ast.unparse(node.value)
        if owner not in {"self", "cls", "super()"} and node.attr not in own | NAMED_TUPLE_NAMES:
            yield file.finding(node, f"{owner}.{node.attr} is private to another module")


def _reads_private(call: ast.Call) -> bool:
    """`getattr(x, "_name")` and the like."""
    name = call.args[1] if len(call.args) > 1 else None
    return (
        isinstance(call.func, ast.Name)
        and call.func.id in {"getattr", "hasattr"}
        and isinstance(name, ast.Constant)
        and isinstance(name.value, str)
        and _is_private(name.value)
    )


def _is_private(name: str) -> bool:
    # `_value_` and the like are public names of the standard library.
    return name.startswith("_") and not name.startswith("__") and not name.endswith("_")


def _defined_names(file: SourceFile) -> set[str]:
    """Functions, classes and variables of a module, and attributes set on `self` and `cls`."""
    names = set()
    for node in file.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in {"self", "cls"}
        ):
            names.add(node.attr)
    return names


def no_hand_formatting(file: SourceFile) -> Iterator[str]:
    """The formatter decides, except for a table of constants whose rows mean something."""
    if not file.path.startswith(("broker_core/", "pyspark_rmq/")):
        return
    if file.path.startswith(tuple(MAY_SKIP_FORMAT)):
        return
    statements = [node for node in file.nodes if isinstance(node, ast.stmt)]
    for number, line in enumerate(file.text.splitlines(), start=1):
        if not _FORMAT_MARK.search(line):
            continue
        around = [n for n in statements if n.lineno <= number <= (n.end_lineno or n.lineno)]
        inner = max(around, key=lambda node: node.lineno, default=None)
        if inner is None or not _is_table(inner):
            yield file.finding(number, "formatted by hand: leave it to the formatter")


def _is_table(statement: ast.stmt) -> bool:
    """Constants, collections of them, and names for them; no call and no unpacking."""
    if isinstance(statement, ast.Assign):
        is_one_name = all(isinstance(target, ast.Name) for target in statement.targets)
    else:
        is_one_name = isinstance(statement, ast.AnnAssign)
    return is_one_name and not any(isinstance(n, ast.Call) for n in ast.walk(statement))


def no_untyped_wiring(file: SourceFile) -> Iterator[str]:
    """Objects are connected by named and typed arguments, which the type checker compares."""
    if not file.path.startswith(TYPED_WIRING):
        return
    for node in file.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        rest = node.args.kwarg
        connects = node.name == "__init__" or node.name.startswith("build")
        if connects and rest is not None:
            yield file.finding(node, f"{node.name} takes **{rest.arg}: name the arguments")


def no_setting_by_name(file: SourceFile) -> Iterator[str]:
    """Attributes and names are set where they can be found by their text."""
    if not file.path.startswith(("broker_core/", "pyspark_rmq/")) or file.path in MAY_SET_BY_NAME:
        return
    for node in file.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"delattr", "globals", "locals", "setattr", "vars"}:
                yield file.finding(node, f"{node.func.id}() hides which name is set")
        elif (
            isinstance(node, ast.Attribute)
            and node.attr == "__dict__"
            and ast.unparse(node.value) != "self"
        ):
            yield file.finding(node, "__dict__ of another object")


def no_late_binding(file: SourceFile) -> Iterator[str]:
    """An object gets the functions that it calls as arguments, or by a method that names them."""
    if not file.path.startswith(("broker_core/", "pyspark_rmq/")):
        return
    if file.path.startswith(tuple(MAY_BIND_LATE)):
        return
    functions = {
        node.name for node in file.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for node in file.nodes:
        if not isinstance(node, ast.Assign) or not _is_function(node.value, functions):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in {
                "self",
                "cls",
            }:
                yield file.finding(node, f"{ast.unparse(target)} is set from outside: pass it")


def _is_function(value: ast.expr, functions: set[str]) -> bool:
    """A function that is not called here: a method of `self`, a lambda or a partial."""
    if isinstance(value, ast.IfExp):
        return _is_function(value.body, functions) or _is_function(value.orelse, functions)
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {"partial", "functools.partial"}
    if isinstance(value, ast.Attribute):
        return ast.unparse(value.value) == "self" and value.attr in functions
    return isinstance(value, ast.Lambda)


def no_print(file: SourceFile) -> Iterator[str]:
    """A library speaks through values and logs."""
    if file.path.startswith(MAY_PRINT) or file.path == "setup.py":
        return
    for node in file.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield file.finding(node, "print belongs to the command line and the examples")


def no_hidden_clock(file: SourceFile) -> Iterator[str]:
    """Time comes from the clock that a component was built with, which a test can move."""
    if not file.path.startswith("broker_core/") or file.path == "broker_core/runtime/clock.py":
        return
    for line, module, name in file.imports():
        if module == "time" and name in CLOCK_READERS:
            yield file.finding(line, f"time.{name}: ask the clock that you were given")
    for node in file.nodes:
        if not isinstance(node, ast.Attribute):
            continue
        owner = ast.unparse(node.value)
        by_date = owner.split(".")[-1] in {"date", "datetime"}
        if (by_date and node.attr in {"now", "utcnow", "today"}) or (
            owner == "time" and node.attr in CLOCK_READERS
        ):
            yield file.finding(node, f"{owner}.{node.attr}: ask the clock that you were given")


def no_machine_path(path: str, text: str) -> Iterator[str]:
    """The project runs anywhere."""
    for number, line in enumerate(text.splitlines(), start=1):
        if _MACHINE_PATH.search(line):
            yield f"{path}:{number}: names a path of one machine"
