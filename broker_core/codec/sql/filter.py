"""SQL92 property filters: an expression compiled once into closures, run over many messages.

Values of properties are strings, converted as RocketMQ does when they are compared with a number: a
32-bit integer needs a string that holds one (`'1.5' > 1` cannot be decided, `'1.5' > 1.0` is true).
A missing property is unknown, and a comparison that cannot be decided does not match:

- `a = b` with `b` missing is false, not unknown; with both missing it is true.
- searches (`CONTAINS` …) over a missing property are false, and so is `NOT CONTAINS`.
- a string where a number is needed ends the whole evaluation: the message does not match, unless an
  earlier operand of `AND` or `OR` has decided already.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.codec.sql.java_numbers import (
    INTEGER_MAX,
    LONG_MAX,
    NotANumber,
    compare_doubles,
    read_double,
    read_whole,
)
from broker_core.codec.sql.tree import CONSTANT, NEGATION, ORDERS, PROPERTY, Node, parse_sql
from broker_core.errors import InvalidSubscription

Get = Callable[[str], "str | None"]
"""Returns the value of a property by its name."""
Evaluate = Callable[[Get], Any]

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


class SqlFilter:
    """A compiled expression. `cost` is the maximum of operators and values per evaluation."""

    __slots__ = ("_evaluate", "cost", "expression")

    def __init__(self, expression: str) -> None:
        tree = parse_sql(expression)
        self.expression = expression
        self.cost = tree.cost
        self._evaluate = _compiled(tree.root)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true for these properties."""
        try:
            return self._evaluate(properties.get) is True
        except NotANumber:
            return False

    def accepts(self, property_text: bytes) -> bool:
        """`matches` for the property text of a stored message."""
        # Pairs as `message_properties` reads them, decoded at once because it is faster.
        pairs: dict[str, str] = {}
        for pair in property_text.decode("utf-8", "replace").split("\x02"):
            name, _, value = pair.partition("\x01")
            if value and name:
                pairs[name] = value
        try:
            return self._evaluate(pairs.get) is True
        except NotANumber:
            return False


def sql_problem(expression: str) -> str | None:
    """What is wrong with an expression; None when it can be used."""
    try:
        parse_sql(expression)
    except InvalidSubscription as error:
        return str(error)
    return None


def _compiled(node: Node) -> Evaluate:
    kind, operands, value = node.kind, node.operands, node.value
    if kind == CONSTANT:
        return lambda get: value
    if kind == PROPERTY:
        return lambda get: get(value)
    if kind == NEGATION:
        return _negation(node)
    if kind == "AND":
        return _and(tuple(map(_compiled, operands)))
    if kind == "OR":
        return _or(tuple(map(_compiled, operands)))
    if kind == "NOT":
        return _not(_compiled(operands[0]))
    if kind == "CAST":
        # A property is a string and never a boolean.
        return _known_or(_compiled(operands[0]), None, False)
    if kind == "IS NULL":
        return _known_or(_compiled(operands[0]), True, False)
    if kind == "=":
        return _equality(operands[0], operands[1])
    if kind in ORDERS:
        return _order(kind, operands[0], operands[1])
    if kind == "IN":
        return _membership(operands[0].value, value, node.negated)
    return _search(_compiled(operands[0]), _SEARCHES[kind], value, node.negated)


# Logic


def _and(parts: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        result: bool | None = True
        for part in parts:
            found = part(get)
            if found is False:
                return False
            if found is None:
                result = None
        return result

    return evaluate


def _or(parts: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        result: bool | None = False
        for part in parts:
            found = part(get)
            if found is True:
                return True
            if found is None:
                result = None
        return result

    return evaluate


def _not(part: Evaluate) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        found = part(get)
        return None if found is None else not found

    return evaluate


def _known_or(part: Evaluate, unknown: bool | None, known: bool) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        return unknown if part(get) is None else known

    return evaluate


# Texts


def _membership(name: str, texts: frozenset[str], negated: bool) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        text = get(name)
        return None if text is None else (text in texts) is not negated

    return evaluate


def _search(
    part: Evaluate, found_in: Callable[[str, str], bool], wanted: str, negated: bool
) -> Evaluate:
    def evaluate(get: Get) -> bool:
        text = part(get)
        return wanted != "" and isinstance(text, str) and found_in(text, wanted) is not negated

    return evaluate


# Comparisons


def _negation(node: Node) -> Evaluate:
    number = _number(node)
    if number is not None:
        return lambda get: number
    inner = _compiled(node.operands[0])

    def evaluate(get: Get) -> None:
        # Only a number can be negated; evaluating the operand may still end the evaluation.
        inner(get)

    return evaluate


def _number(node: Node) -> int | float | None:
    """The value of a number with any signs before it."""
    if node.kind == NEGATION:
        number = _number(node.operands[0])
        return None if number is None else -number
    value = node.value
    is_number = node.kind == CONSTANT and isinstance(value, (int, float))
    return value if is_number and not isinstance(value, bool) else None


def _equality(left: Node, right: Node) -> Evaluate:
    if left.kind == PROPERTY and right.kind == CONSTANT and isinstance(right.value, str):
        name, wanted = left.value, right.value

        def evaluate(get: Get) -> bool | None:
            text = get(name)
            return None if text is None else text == wanted

        return evaluate
    first, second = _compiled(left), _compiled(right)

    def compare(get: Get) -> bool | None:
        one, other = first(get), second(get)
        if one is None:
            return True if other is None else None
        return False if other is None else _are_equal(one, other)

    return compare


def _order(kind: str, left: Node, right: Node) -> Evaluate:
    number = _number(right)
    if left.kind == PROPERTY and number is not None:
        return _order_with_number(left.value, kind, number)
    number = _number(left)
    if right.kind == PROPERTY and number is not None:
        return _order_with_number(right.value, _MIRRORED[kind], number)
    first, second, is_so = _compiled(left), _compiled(right), _ORDERS[kind]

    def evaluate(get: Get) -> bool | None:
        one = first(get)
        if one is None:
            return None
        other = second(get)
        return None if other is None else is_so(_compared(one, other), 0)

    return evaluate


def _order_with_number(name: str, kind: str, number: int | float) -> Evaluate:
    """The most common comparison, without a check of types at each evaluation."""
    is_so = _ORDERS[kind]
    if isinstance(number, float):
        # NaN is greater than every number.
        nan_is_so = kind in (">", ">=")

        def with_double(get: Get) -> bool | None:
            text = get(name)
            if text is None:
                return None
            value = read_double(text)
            return is_so(value, number) if value == value else nan_is_so

        return with_double
    limit = _limit(number)

    def with_whole(get: Get) -> bool | None:
        text = get(name)
        return None if text is None else is_so(read_whole(text, limit), number)

    return with_whole


def _limit(number: int) -> int:
    """The largest value of the Java type of a literal, which its operand must fit."""
    return INTEGER_MAX if -INTEGER_MAX <= number <= INTEGER_MAX else LONG_MAX


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool):
        if isinstance(other, str):
            # RocketMQ throws here, and the message does not match.
            raise NotANumber
        return one is other
    if isinstance(other, bool):
        return isinstance(one, str) and (one.lower() == "true") is other
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    return _compared(one, other) == 0


def _compared(one: Any, other: Any) -> int:
    """Negative, zero or positive, as `one` is less, equal or greater; neither is a boolean."""
    if isinstance(one, str):
        one = read_whole(one, _limit(other)) if isinstance(other, int) else read_double(one)
    if isinstance(other, str):
        other = read_whole(other, _limit(one)) if isinstance(one, int) else read_double(other)
    if isinstance(one, int) and isinstance(other, int):
        return (one > other) - (one < other)
    return compare_doubles(float(one), float(other))
