"""Messages and expressions to try SQL92 filters with, and a slow, plain judge of them.

Random expressions come as trees of our own (`Tree`), rendered into text in many spellings, so that
the judge shares neither parser nor evaluator with the filter it judges.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

Tree = tuple[Any, ...]
Properties = dict[str, str]

NAMES = ("a", "b", "color", "$x_1", "A")

MESSAGES: tuple[Properties, ...] = (
    {},
    {"a": "1"},
    {"a": "5", "b": "5", "color": "red"},
    {"a": "5", "b": "5.0"},
    {"a": "-7", "b": "abc"},
    {"a": "abc", "color": "red"},
    {"a": "true", "b": "TRUE", "color": "blue"},
    {"a": "false", "b": "1.5"},
    {"a": "1.5", "b": "2", "$x_1": "it's"},
    {"a": "2147483647", "b": "2147483648"},
    {"a": "-2147483648", "b": "9223372036854775807"},
    {"a": "9223372036854775808", "b": "0"},
    {"a": " 5", "b": "5 "},
    {"a": "+5", "b": "0005"},
    {"a": "1e3", "b": "1000"},
    {"a": "NaN", "b": "Infinity"},
    {"a": "nan", "b": "inf"},
    {"a": "-Infinity", "b": "-0.0", "color": "0.0"},
    {"a": "5d", "b": "5f", "color": "0x1p3"},
    {"a": "1_000", "b": "5L"},
    {"a": "\u0665", "b": "\uff15"},
    {"a": "\U0001d7d3", "b": "5"},
    {"color": "red", "A": "5"},
    {"color": "dark red", "b": "3"},
    {"color": "RED", "$x_1": "$"},
    {"color": "'", "b": "."},
    {"color": "grün", "a": "7", "b": "8"},
    {"A": "10", "a": "20", "b": "30"},
    {"color": "r", "b": "-", "a": "+"},
    {"b": "4.9E-324", "a": "1.7976931348623157e308", "$x_1": "1e400"},
    {"a": "0", "b": "0.5", "color": "0"},
    {"a": "10", "b": "10"},
)

# Expression -> what is doubtful about it.
DOUBTS: tuple[tuple[str, str], ...] = (
    ("a > 1", "whole literal"),
    ("a > 1.0", "real literal"),
    ("a >= 2147483648", "64-bit literal"),
    ("a <= -2147483648", "64-bit literal by its sign"),
    ("a < 5L", "suffix"),
    ("1 < a", "literal first"),
    ("5 = a", "literal first"),
    ("a = 5", "whole equality"),
    ("a = 5.", "real equality"),
    ("a <> 5", "inequality"),
    ("a = '5'", "text equality"),
    ("a = b", "two properties, both may be missing"),
    ("a <> b", "their inequality"),
    ("a > b", "two properties as doubles"),
    ("a >= b", "NaN and zeros"),
    ("a = TRUE", "truth value"),
    ("a = false", "truth value"),
    ("a <> TRUE", "truth value"),
    ("TRUE = a", "truth value first"),
    ("NOT (TRUE = a)", "truth value first"),
    ("a", "a property alone"),
    ("NOT a", "a property alone"),
    ("NOT a IS NULL", "NOT binds to the property"),
    ("NOT a = 1", "NOT binds to the property"),
    ("NOT (a = 1)", "unknown stays unknown"),
    ("a IS NULL", "missing"),
    ("a IS NOT NULL", "there"),
    ("(a > 1) IS NULL", "unknown"),
    ("NULL", "unknown"),
    ("NULL IS NULL", "a constant"),
    ("1 IS NULL", "a constant"),
    ("TRUE", "everything"),
    ("FALSE OR TRUE", "everything"),
    ("1 = TRUE", "types that never meet"),
    ("'TRUE' = TRUE", "text and truth value"),
    ("1 = 1.0", "numbers"),
    ("'5' = 5", "text and number"),
    ("a = 1 = TRUE", "a comparison compared"),
    ("(a = 5) = (b = 5)", "two comparisons compared"),
    ("(a = 5) <> b", "a comparison and a property"),
    ("a IN ('5', 'abc')", "a list"),
    ("a NOT IN ('5', 'abc')", "a list"),
    ("(a) IN ('5')", "in parentheses"),
    ("+a IN ('5')", "with a plus"),
    ("NOT (a IN ('5'))", "a list"),
    ("color IN ('it''s', '''', 'red', 'grün', 'r', 'x')", "a longer list with quotes"),
    ("color CONTAINS 'red'", "search"),
    ("color NOT CONTAINS 'red'", "search"),
    ("NOT (color CONTAINS 'red')", "search in a missing property"),
    ("color CONTAINS ''", "empty search"),
    ("color NOT CONTAINS ''", "empty search"),
    ("color STARTSWITH 'r' OR color EndsWith 'd'", "search"),
    ("color NOT STARTSWITH 'r' AND color NOT ENDSWITH 'd'", "search"),
    ("'red' CONTAINS 'e'", "search in a constant"),
    ("5 CONTAINS '5'", "search in a number"),
    ("(a = 5) CONTAINS 't'", "search in a truth value"),
    ("a BETWEEN 1 AND 10", "range"),
    ("a NOT BETWEEN 1 AND 10", "range"),
    ("a NOT BETWEEN 10 AND 1", "an empty range turned round"),
    ("a BETWEEN -10 AND 1.5", "mixed range"),
    ("a BETWEEN 5 AND -5", "empty, unseen because of the sign"),
    ("a BETWEEN b AND 10", "range of a property"),
    ("5 BETWEEN a AND b", "a number between properties"),
    ("a > -b", "a negated property"),
    ("(-b) IS NULL", "a negated property"),
    ("a > --1", "two signs"),
    ("a > +-+1", "signs"),
    ("a = -'x'", "a negated text"),
    ("-(a > 1) IS NULL", "a negated condition"),
    ("a > 1 OR b = 'abc'", "a text where a number is needed"),
    ("b = 'abc' OR a > 1", "decided before it is read"),
    ("a > 1 AND color = 'red'", "a text where a number is needed"),
    ("color = 'blue' AND a > 1", "decided before it is read"),
    ("b = 'nothing' OR NOT (a > 1)", "unknown or error under NOT"),
    ("A = 5", "names have case"),
    ("$x_1 = 'it''s'", "signs in names"),
    ("a>1and b<10", "without spaces"),
    ("a > 1 -- why\n AND b < 10", "comment"),
    ("a > /* not 7 */ 1", "comment"),
    ("a = 1 aNd b = 2 oR color iS nOt NuLL", "case of words"),
    ("a = 0", "zero"),
    ("a = 1e3", "exponent"),
    ("a = .5 OR b = .5", "no whole part"),
    ("a < 1.7976931348623157E308", "the largest"),
    ("a >= 4.9E-324", "the smallest"),
    ("TAGS IS NULL", "a system property"),
    ("UNIQ_KEY IS NOT NULL", "a system property"),
    ("UNIQ_KEY <> '' AND MAX_OFFSET IS NULL", "a system property"),
)

# Refused by both.
REFUSED: tuple[str, ...] = (
    "", "   ", "a >", "(a > 1", "> 1", "a > 1 AND", "OR a > 1", "a IN ()", "a IN (1)", "a IN ('x'",
    "5 IN ('5')", "NOT a IN ('x')", "-a IN ('x')", "a = NULL", "NULL = a", "a <> NULL", "a > NULL",
    "a > 'x'", "a > TRUE", "(a = 1) > 2", "NOT a > 1", "a BETWEEN 10 AND 1",
    "a BETWEEN 'a' AND 'b'",
    "a BETWEEN 1", "a BETWEEN NULL AND 2", "5", "'x'", "-a", "-5 AND TRUE", "a = 'x", 'a = "x"',
    "a ! 1", "a > 1; ", "a == 1", "a > 9223372036854775808", "a > 1e309", "TRUE = 1",
    "a CONTAINS b",
    "a CONTAINS 5", "a STARTSWITH", "a NOT 5", "a IS 5", "a IS NOT 5", "größe = 1", "a > > 1",
    "a AND 5", "'x' OR a = 1", "()", "a = ()", "a = 1 AND (b = 2", "@", "a = 1 ~ 2", "TRUE = 'x'",
    "aNd = 'x'", "between BETWEEN 1 AND 2",
)  # fmt: skip

# RocketMQ reads these up to a point and ignores the rest; we say what is wrong.
REFUSED_BY_US: tuple[str, ...] = (
    "a = 1 b = 2", "a LIKE 'x%'", "a = 1)", "a = 007", "a = 1.5.2", "color = 'red' 'blue'",
    "a = 0L",
)  # fmt: skip
# RocketMQ takes zero for a number that is too small.
REFUSED_BY_APACHE: tuple[str, ...] = ("a > 0.0", "a < 0e5", "a > 1e-400")


# Random expressions


def random_tree(random: random.Random, depth: int) -> Tree:
    """A condition that is legal for RocketMQ."""
    if depth <= 0 or random.random() < 0.25:
        return _simple(random)
    pick = random.random()
    if pick < 0.3:
        count = random.choice((2, 2, 3))
        return ("and", *(random_tree(random, depth - 1) for _ in range(count)))
    if pick < 0.6:
        count = random.choice((2, 2, 3))
        return ("or", *(random_tree(random, depth - 1) for _ in range(count)))
    if pick < 0.8:
        return ("not", random_tree(random, depth - 1))
    if pick < 0.88:
        return ("null", _operand(random, depth), random.random() < 0.5)
    if pick < 0.95:
        return ("eq", _operand(random, depth), _operand(random, depth), random.random() < 0.3)
    return _simple(random)


def _operand(random: random.Random, depth: int) -> Tree:
    """A condition to be compared, where a property alone is its text and not a condition."""
    tree = random_tree(random, depth - 1)
    return tree[1] if tree[0] == "cast" else tree


def _simple(random: random.Random) -> Tree:
    kind = random.choice(("order", "order", "eq", "eq", "in", "search", "between", "null", "cast"))
    if kind == "order":
        sign = random.choice((">", ">=", "<", "<="))
        left, right = _property(random), random.choice((_property, _number))(random)
        return ("order", sign, *random.choice(((left, right), (right, left))))
    if kind == "eq":
        right = random.choice((_property, _number, _text, _number, _text, _truth))(random)
        return ("eq", _property(random), right, random.random() < 0.3)
    if kind == "in":
        texts = [_text(random)[1] for _ in range(random.randint(1, 6))]
        return ("in", _property(random), texts, random.random() < 0.4)
    if kind == "search":
        word = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
        return ("search", word, _property(random), _text(random)[1], random.random() < 0.4)
    if kind == "between":
        low, high = sorted((_number(random), _number(random)), key=lambda number: number[1])
        return ("between", _property(random), low, high, random.random() < 0.4)
    if kind == "null":
        return ("null", _property(random), random.random() < 0.5)
    return ("cast", _property(random))


def _property(random: random.Random) -> Tree:
    return ("name", random.choice(NAMES))


def _number(random: random.Random) -> Tree:
    return ("number", random.choice(
        (0, 1, 5, -7, 10, 1000, 2147483647, -2147483647, 2147483648, -2147483648, 3000000000,
         9223372036854775807, 0.5, 1.5, 5.0, 2e10, -1.5, 1e300, 1000.0)
    ))  # fmt: skip


def _text(random: random.Random) -> Tree:
    return ("text", random.choice(
        ("red", "blue", "5", "abc", "1.5", "true", "it's", "'", "e", "r", "d", "", "grün", "10")
    ))  # fmt: skip


def _truth(random: random.Random) -> Tree:
    return ("truth", random.random() < 0.5)


def rendered(tree: Tree, random: random.Random) -> str:
    """The text of a tree, in any spelling."""
    text = " ".join(_words(tree, random))
    return re.sub(r"(?<=[()=<>,]) | (?=[()=<>,])", lambda _: random.choice((" ", "")), text)


def _words(tree: Tree, random: random.Random) -> Iterator[str]:
    kind = tree[0]
    if kind in ("and", "or"):
        for number, part in enumerate(tree[1:]):
            if number:
                yield _case(kind, random)
            yield from _enclosed(part, random)
    elif kind == "not":
        yield _case("not", random)
        yield from _enclosed(tree[1], random)
    elif kind == "null":
        yield from _enclosed(tree[1], random)
        yield _case("is", random)
        if tree[2]:
            yield _case("not", random)
        yield _case("null", random)
    elif kind == "eq":
        yield from _enclosed(tree[1], random)
        yield "<>" if tree[3] else "="
        yield from _enclosed(tree[2], random)
    elif kind == "order":
        yield from (_leaf(tree[2]), tree[1], _leaf(tree[3]))
    elif kind == "cast":
        yield _leaf(tree[1])
    else:
        yield from _listed(tree, random)


def _listed(tree: Tree, random: random.Random) -> Iterator[str]:
    kind = tree[0]
    yield _leaf(tree[2] if kind == "search" else tree[1])
    if tree[-1]:
        yield _case("not", random)
    if kind == "in":
        yield _case("in", random)
        yield "(" + " , ".join(_leaf(("text", text)) for text in tree[2]) + ")"
    elif kind == "search":
        yield _case(tree[1], random)
        yield _leaf(("text", tree[3]))
    else:
        yield from (_case("between", random), _leaf(tree[2]), _case("and", random), _leaf(tree[3]))


def _enclosed(tree: Tree, random: random.Random) -> Iterator[str]:
    if tree[0] in ("name", "number", "text", "truth"):
        yield _leaf(tree)
    else:
        yield "("
        yield from _words(tree, random)
        yield ")"


def _leaf(tree: Tree) -> str:
    kind, value = tree
    if kind == "text":
        return "'" + str(value).replace("'", "''") + "'"
    return repr(value).upper() if kind in ("number", "truth") else str(value)


def _case(word: str, random: random.Random) -> str:
    return random.choice((word.upper(), word.lower(), word.title()))


# The judge


class _Stumbled(Exception):
    pass


def judged(tree: Tree, properties: Mapping[str, str]) -> bool:
    """Whether RocketMQ delivers a message with these properties."""
    try:
        return _value(tree, properties) is True
    except _Stumbled:
        return False


def _value(tree: Tree, properties: Mapping[str, str]) -> Any:
    kind = tree[0]
    if kind == "name":
        return properties.get(tree[1])
    if kind in ("number", "text", "truth"):
        return tree[1]
    if kind in ("and", "or"):
        deciding = kind == "or"
        values = []
        for part in tree[1:]:
            values.append(_value(part, properties))
            if values[-1] is deciding:
                return deciding
        return None if None in values else not deciding
    if kind == "not":
        value = _value(tree[1], properties)
        return None if value is None else not value
    if kind == "cast":
        return None if _value(tree[1], properties) is None else False
    if kind == "null":
        return (_value(tree[1], properties) is None) != tree[2]
    return _leaf_condition(tree, properties)


def _leaf_condition(tree: Tree, properties: Mapping[str, str]) -> Any:
    kind = tree[0]
    if kind == "eq":
        value = _equal(_value(tree[1], properties), _value(tree[2], properties))
        return value if value is None else value != tree[3]
    if kind == "order":
        return _ordered(tree[1], _value(tree[2], properties), _value(tree[3], properties))
    if kind == "in":
        text = _value(tree[1], properties)
        return None if text is None else (text in tree[2]) != tree[3]
    if kind == "search":
        text, wanted = _value(tree[2], properties), tree[3]
        if text is None or not wanted:
            return False
        found = {"CONTAINS": wanted in text, "STARTSWITH": text.startswith(wanted),
                 "ENDSWITH": text.endswith(wanted)}[tree[1]]  # fmt: skip
        return found != tree[4]
    value, low, high = tree[1:4]
    if tree[4]:
        return _value(("or", ("order", "<", value, low), ("order", ">", value, high)), properties)
    return _value(("and", ("order", ">=", value, low), ("order", "<=", value, high)), properties)


def _equal(left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return True if left is right else (None if left is None else False)
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, str):
            return bool((left.casefold() == "true") == right)
        if isinstance(right, str):
            raise _Stumbled
        return left is right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    return _difference(left, right) == 0


def _ordered(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    difference = _difference(left, right)
    return {">": difference > 0, ">=": difference >= 0, "<": difference < 0,
            "<=": difference <= 0}[sign]  # fmt: skip


def _difference(left: Any, right: Any) -> int:
    if isinstance(left, str):
        left = _like(right, left)
    if isinstance(right, str):
        right = _like(left, right)
    if isinstance(left, float) or isinstance(right, float):
        left, right = _rank(float(left)), _rank(float(right))
    return int(left > right) - int(left < right)


def _rank(number: float) -> tuple[int, float, int]:
    if number != number:
        return (1, 0.0, 0)
    return (0, number, -1 if str(number) == "-0.0" else 0)


def _like(model: Any, text: str) -> int | float:
    """A text as a number of the kind that it is compared with."""
    if isinstance(model, int):
        if not re.fullmatch(r"[+-]?[0-9\u0660-\u0669\uff10-\uff19]{1,400}", text):
            raise _Stumbled
        bits = 31 if abs(model) < 2**31 else 63
        if not -(2**bits) <= int(text) < 2**bits:
            raise _Stumbled
        return int(text)
    stripped = text.strip("".join(map(chr, range(33))))
    if re.fullmatch(r"[+-]?(NaN|Infinity)", stripped):
        return float(stripped)
    if re.fullmatch(r"[+-]?0[xX][0-9a-fA-F]+[pP][+-]?[0-9]+", stripped):
        return float.fromhex(stripped)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?", stripped):
        return float(stripped.rstrip("fFdD"))
    raise _Stumbled
