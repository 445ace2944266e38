"""Tokens of a SQL92 filter expression: names, literals, signs. Takes linear time.

Reserved words are the same in either case; names are case-sensitive. `--` begins a comment when a
line end follows, as RocketMQ has it, and is otherwise two minus signs.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker_core.errors import InvalidSubscription

SQL_SIZE_MAX: Final = 32 << 10
"""Characters of one expression."""
TOKENS_MAX: Final = 12_000

NAME: Final = "name"
TEXT: Final = "text"
WHOLE: Final = "whole"
REAL: Final = "real"
END: Final = "end"
RESERVED: Final = frozenset(
    (
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    )
)

# Linear time: no part can match the same characters in two ways, and a part that fails after it has
# read far ahead ends the tokenization.
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\n\r\f]+ | /\*[^*]*\*+(?:[^*/][^*]*\*+)*/)
  | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
  | (?P<real>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
             | [0-9]+[eE][+-]?[0-9]+)
  | (?P<whole>0|[1-9][0-9]*[lL]?)
  | (?P<text>'[^']*(?:''[^']*)*')
  | (?P<sign><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)


_LINE_END: Final = re.compile(r"[\n\r]")


class Token(NamedTuple):
    """`kind` is one of the constants above, or the reserved word or sign itself."""

    kind: str
    text: str
    at: int


def sql_tokens(expression: str) -> list[Token]:
    """All tokens and an `END`; raises `InvalidSubscription` for characters that form no token."""
    size = len(expression)
    if size > SQL_SIZE_MAX:
        raise InvalidSubscription(
            f"the SQL92 expression has {size} characters, at most {SQL_SIZE_MAX}"
        )
    tokens: list[Token] = []
    last_line_end = max(expression.rfind("\n"), expression.rfind("\r"))
    at = 0
    while at < size:
        if at < last_line_end and expression.startswith("--", at):
            line_end = _LINE_END.search(expression, at)
            assert line_end is not None
            at = line_end.end()
            continue
        found = _TOKEN.match(expression, at)
        if found is None:
            raise bad_expression(expression, at, _why(expression[at]))
        kind, text = str(found.lastgroup), found.group()
        if kind == NAME and text.upper() in RESERVED:
            kind = text.upper()
        elif kind == "sign":
            kind = text
        elif kind == TEXT:
            text = text[1:-1].replace("''", "'")
        if kind != "space":
            tokens.append(Token(kind, text, at))
            if len(tokens) > TOKENS_MAX:
                raise bad_expression(expression, at, f"more than {TOKENS_MAX} tokens")
        at = found.end()
    tokens.append(Token(END, "", size))
    return tokens


def bad_expression(expression: str, at: int, reason: str) -> InvalidSubscription:
    """The error for `reason`, with the position and the characters found there."""
    near = expression[at : at + 20]
    place = f"at character {at + 1}, {near!r}" if near else "at its end"
    return InvalidSubscription(f"SQL92 expression: {reason} ({place})")


def _why(character: str) -> str:
    if character == "'":
        return "a string without its closing quote"
    if character == '"':
        return "write strings in single quotes"
    return "unexpected character"
