"""The rule that no test asserts how long something takes.

A machine that other programs use stands still for seconds now and then, so such a test fails
without a defect. Tests wait for an event with a limit of minutes, or compare orders and counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.import_rules import SourceFile
from tests.source_rules import CLOCK_READERS

# A deadline that is nearer than this is a bound on a duration; one that is further is for hangs.
PATIENT_S = 60
_READERS = CLOCK_READERS | {"process_time", "process_time_ns", "thread_time"}


def no_asserted_duration(file: SourceFile) -> Iterator[str]:
    """No assertion fails because time has passed: none limits a difference of two clock readings.

    Followed within a module: through names, attributes, lists that they are put into, and functions
    that return them. Manual clocks are not meant, nor lower bounds, which only hold longer.
    """
    if not file.path.startswith("tests/"):
        return
    found = _Durations(file)
    for node in file.nodes:
        if isinstance(node, ast.Assert):
            for compared in ast.walk(node.test):
                if isinstance(compared, ast.Compare) and found.limits(compared):
                    yield file.finding(
                        node, "asserts a duration: wait for the event, or compare orders and counts"
                    )
                    break


class _Durations:
    """Names of a module that hold a real clock, a time that passed, or a deadline that is near."""

    def __init__(self, file: SourceFile) -> None:
        self._clocks: set[str] = set()
        self._passed: set[str] = set()
        self._near: set[str] = set()
        known = -1
        while known != self._known():
            known = self._known()
            for node in file.nodes:
                self._learn(node)

    def _known(self) -> int:
        return len(self._clocks) + len(self._passed) + len(self._near)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in {"append", "add"} and any(map(self._is_passed, node.args)):
                self._passed |= _names(node.func.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ast.walk(node):
                if isinstance(part, ast.Return) and part.value and self._is_passed(part.value):
                    self._passed.add(node.name)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its_value in zip(target.elts, value.elts, strict=False):
                self._assign(one, its_value)
            return
        names = _names(target)
        if isinstance(value, ast.Call) and _last_name(value.func) == "SystemClock":
            self._clocks |= names
        elif self._is_passed(value):
            self._passed |= names
        elif self._is_near(value):
            self._near |= names

    def limits(self, compared: ast.Compare) -> bool:
        """Whether it fails when more time has passed."""
        sides = [compared.left, *compared.comparators]
        for left, operator, right in zip(sides, compared.ops, sides[1:], strict=False):
            if isinstance(operator, ast.Gt | ast.GtE):
                left, right = right, left
            elif not isinstance(operator, ast.Lt | ast.LtE):
                continue
            if self._is_passed(left):
                return True
            if self._is_reading(left) and (self._is_near(right) or _names(right) & self._near):
                return True
        return False

    def _is_passed(self, value: ast.expr) -> bool:
        """Whether a part of it is a time that passed; a text about one is none."""
        if isinstance(value, ast.JoinedStr):
            return False
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
            return self._is_reading(value.left) or self._is_passed(value.left)
        if isinstance(value, ast.Call) and _last_name(value.func) in {"len", "str", "repr"}:
            return False
        if isinstance(value, ast.Name | ast.Attribute):
            return bool(_names(value) & self._passed)
        parts = (part for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))
        return any(map(self._is_passed, parts))

    def _is_near(self, value: ast.expr) -> bool:
        """Whether it is now and less than a minute."""
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
            return False
        added = value.right
        return (
            self._is_reading(value.left)
            and isinstance(added, ast.Constant)
            and isinstance(added.value, int | float)
            and added.value < PATIENT_S
        )

    def _is_reading(self, value: ast.expr) -> bool:
        """Whether it is what a real clock shows, now or when a name was given to it."""
        if not isinstance(value, ast.Call):
            return False
        function = value.func
        if isinstance(function, ast.Name):
            return function.id in _READERS - {"time"}
        if not isinstance(function, ast.Attribute):
            return False
        owner = function.value
        if function.attr in _READERS and isinstance(owner, ast.Name) and owner.id == "time":
            return True
        if function.attr in {"monotonic", "wall_ms"}:
            return bool(_names(owner) & self._clocks) or _last_name(owner) == "SystemClock"
        return function.attr == "time" and "loop" in _last_name(owner)


def _names(value: ast.expr) -> set[str]:
    """The name, or the last one of a dotted one."""
    if isinstance(value, ast.Name):
        return {value.id}
    if isinstance(value, ast.Attribute):
        return {value.attr}
    return {name for part in getattr(value, "elts", ()) for name in _names(part)}


def _last_name(value: ast.expr) -> str:
    if isinstance(value, ast.Call):
        return _last_name(value.func)
    if isinstance(value, ast.Attribute):
        return value.attr
    return value.id if isinstance(value, ast.Name) else ""
