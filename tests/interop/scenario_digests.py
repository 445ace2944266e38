"""What a scenario does, as a short hash: its text, and that of the helpers it uses.

Helpers are the functions and constants of the modules of scenarios, followed through calls and
imports between these modules. The clients, the drivers and the clusters below them are named by
the cell itself; a change there does not change what a scenario asks.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).parent
_PACKAGE = "tests.interop."
_OF_SCENARIOS = ("client_scenarios_", "mqadmin_scenarios")
DIGITS = 12

# A name in a module
Place = tuple[str, str]


class _Definition(NamedTuple):
    text: str
    names: frozenset[str]


class _Module(NamedTuple):
    definitions: Mapping[str, _Definition]
    # Name here -> where it comes from, for imports from modules of scenarios
    imported: Mapping[str, Place]


def scenario_digest(run: Callable[..., Any], *settings: object) -> str:
    """Of a scenario's function and of what it was registered with."""
    module = run.__module__.removeprefix(_PACKAGE)
    places = used_places(module, run.__name__)
    parts = [repr(settings), *(_module(m).definitions[name].text for m, name in places)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGITS]


def used_places(module: str, name: str) -> list[Place]:
    """The definition itself and all that it uses, in a fixed order."""
    found: set[Place] = set()
    left = [(module, name)]
    while left:
        place = left.pop()
        if place not in found:
            found.add(place)
            left += _used(*place)
    return [(module, name), *sorted(found - {(module, name)})]


def _used(module: str, name: str) -> Iterator[Place]:
    known = _module(module)
    for used in known.definitions[name].names:
        if used in known.definitions:
            yield module, used
        elif used in known.imported:
            yield known.imported[used]


@cache
def _module(name: str) -> _Module:
    return parsed_module((_FOLDER / f"{name}.py").read_text(encoding="utf-8"))


def parsed_module(text: str) -> _Module:
    """The definitions of a module, without their decorators."""
    lines = text.splitlines()
    definitions: dict[str, _Definition] = {}
    imported: dict[str, Place] = {}
    for node in ast.parse(text).body:
        for name in _defined(node):
            shown = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            definitions[name] = _Definition(shown, frozenset(_names(node)))
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = node.module.removeprefix(_PACKAGE)
            if module.startswith(_OF_SCENARIOS):
                imported |= {a.asname or a.name: (module, a.name) for a in node.names}
    return _Module(definitions, imported)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]


def _names(node: ast.stmt) -> Iterator[str]:
    # Decorators register a scenario; what they say is given as settings.
    skipped = getattr(node, "decorator_list", [])
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from (n.id for n in ast.walk(child) if isinstance(n, ast.Name))


def cell_mark(digest: str, *cell_and_result: str) -> str:
    """What a run writes beside a result: no other cell and no other result has the same."""
    text = "\0".join((digest, *cell_and_result))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
