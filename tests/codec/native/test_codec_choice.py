"""Which backend is chosen, and that both are one codec: same files, functions and signatures."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec import native
from broker_core.codec.native import (
    TWINS,
    choose_backend,
    codec_backend,
    native_functions,
    python_functions,
)
from tests.codec.codec_backends import BACKENDS

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "broker_core" / "codec" / "native"
REFERENCE = ROOT / "broker_core" / "codec" / "reference"
IS_BUILT = len(BACKENDS) == 2


def test_python_can_be_forced() -> None:
    assert choose_backend("python") == ("python", python_functions())


def test_native_is_preferred_where_it_is_built() -> None:
    expected = ("native", native_functions()) if IS_BUILT else ("python", python_functions())
    assert choose_backend("") == expected


def test_native_can_be_demanded() -> None:
    if IS_BUILT:
        assert choose_backend("native") == ("native", native_functions())
    else:
        with pytest.raises(ImportError):
            choose_backend("native")


def test_unknown_choice_is_refused() -> None:
    with pytest.raises(ImportError, match="RMQ_CODEC"):
        choose_backend("rust")


def test_the_functions_of_the_backend_are_those_of_the_module() -> None:
    assert codec_backend() in ("native", "python")
    _, functions = choose_backend(codec_backend())
    assert {name: getattr(native, name) for name in functions} == functions


def typed_names() -> Iterator[tuple[str, str]]:
    """Twin and name of each function that the chooser declares for type checkers."""
    for node in ast.walk(ast.parse((NATIVE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "broker_core.codec.reference."
        ):
            assert node.module is not None
            yield from ((node.module.rpartition(".")[2], alias.name) for alias in node.names)


def twin_names(stem: str) -> set[str]:
    """What the twin file says it has."""
    return {name for name, function in python_functions().items() if stem_of(function) == stem}


def stem_of(function: Callable[..., Any]) -> str:
    return function.__module__.rpartition(".")[2]


def table_names(source: Path) -> set[str]:
    """Functions in the table of a C file that Python code may use."""
    return set(re.findall(r"NATIVE_FUNCTION\(\s*([a-z]\w*)", source.read_text()))


def test_every_function_has_its_declared_type() -> None:
    declared = list(typed_names())
    assert len(declared) == len(set(declared))
    assert set(declared) == {(stem_of(f), name) for name, f in python_functions().items()}


def test_each_c_file_with_functions_has_a_twin_of_its_name() -> None:
    tables = {path.stem: names for path in NATIVE.glob("*.c") if (names := table_names(path))}
    assert tables.keys() == set(TWINS)
    for stem, names in tables.items():
        assert twin_names(stem) == names, stem
        assert (REFERENCE / f"{stem}.py").is_file()


@pytest.mark.skipif(not IS_BUILT, reason="the native codec is not built")
def test_both_backends_have_the_same_functions_and_signatures() -> None:
    compiled, python = native_functions(), python_functions()
    assert compiled.keys() == python.keys()
    for name, function in compiled.items():
        assert parameters(function) == parameters(python[name]), name


def parameters(function: Callable[..., Any]) -> list[tuple[str, object, object]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


@pytest.mark.skipif(not IS_BUILT, reason="the native codec is not built")
def test_a_compiled_function_parses_the_arguments_of_its_signature() -> None:
    """The signature is a text; the names that the C code parses are another one."""
    parser = re.compile(r"\*codec_(\w+)\(.*?\) \{\s.*?names\[\] = \{([^}]*)\}", re.S)
    parsed = {
        name: re.findall(r'"(\w+)"', names)
        for path in NATIVE.glob("*.c")
        for function in re.split(r"^}\n", path.read_text(), flags=re.M)
        for name, names in parser.findall(function)
    }
    by_name = set()
    for name, function in native_functions().items():
        found = parameters(function)
        if found[0][1] is inspect.Parameter.POSITIONAL_ONLY:
            with pytest.raises(TypeError, match=r"takes|argument"):
                function(*[None] * (len(found) + 1))
        else:
            by_name.add(name)
            assert [parameter[0] for parameter in found] == parsed[name], name
    assert by_name == parsed.keys()


def compared_names() -> set[str]:
    """Attributes and texts of tests that use both backends: functions are called by either."""
    texts = [path.read_text() for path in (ROOT / "tests" / "codec").rglob("test_*.py")]
    both = [text for text in texts if re.search(r"codec_backends import .*(BACKENDS|PYTHON)", text)]
    return {name for text in both for name in re.findall(r"\b\w+\.(\w+)\b", text)} | {
        name for text in both for name in re.findall(r'"(\w+)"', text)
    }


def test_every_function_is_compared_with_its_twin() -> None:
    missing = python_functions().keys() - compared_names()
    assert not missing, "no test in tests/codec/ calls these of both backends"


def test_only_the_chooser_imports_a_twin() -> None:
    twin = re.compile(r"^\s*(?:from|import) broker_core\.codec(?:\.| import )reference", re.M)
    importers = {
        path.relative_to(ROOT).as_posix()
        for tree in ("broker_core", "pyspark_rmq", "examples", "benchmarks", "tools")
        for path in (ROOT / tree).rglob("*.py")
        if twin.search(path.read_text())
    }
    others = {path for path in importers if not path.startswith("broker_core/codec/reference/")}
    assert others == {"broker_core/codec/native/__init__.py"}
