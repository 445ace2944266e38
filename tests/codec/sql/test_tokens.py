"""Words and signs of SQL92 expressions."""

from __future__ import annotations

import pytest

from broker_core.codec.sql.tokens import (
    END,
    NAME,
    REAL,
    SQL_SIZE_MAX,
    TEXT,
    TOKENS_MAX,
    WHOLE,
    sql_tokens,
)
from broker_core.errors import InvalidSubscription


def kinds(expression: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in sql_tokens(expression)][:-1]


def test_kinds() -> None:
    assert kinds("a >= 1 and b_2 = 'it''s' OR $c <> .5e3") == [
        (NAME, "a"),
        (">=", ">="),
        (WHOLE, "1"),
        ("AND", "and"),
        (NAME, "b_2"),
        ("=", "="),
        (TEXT, "it's"),
        ("OR", "OR"),
        (NAME, "$c"),
        ("<>", "<>"),
        (REAL, ".5e3"),
    ]


def test_the_end_and_places() -> None:
    tokens = sql_tokens(" a")
    assert [(token.kind, token.at) for token in tokens] == [(NAME, 1), (END, 2)]
    assert [token.kind for token in sql_tokens("")] == [END]


def test_comments() -> None:
    assert kinds("a /* b ** / */ = 1 -- to the end\n") == [(NAME, "a"), ("=", "="), (WHOLE, "1")]
    assert [kind for kind, _ in kinds("1--2")] == [WHOLE, "-", "-", WHOLE], "no line end follows"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a = 'x", r"closing quote \(at character 5"),
        ('a = "x"', "single quotes"),
        ("a ; b", "unexpected character"),
        ("a" * (SQL_SIZE_MAX + 1), "characters, at most"),
        ("(" * (TOKENS_MAX + 1), "tokens"),
    ],
)
def test_refused(expression: str, text: str) -> None:
    with pytest.raises(InvalidSubscription, match=text):
        sql_tokens(expression)
