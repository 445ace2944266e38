"""SQL92 filter expressions as trees: RocketMQ's grammar and its checks before any message.

    or         = and (OR and)*
    and        = equality (AND equality)*
    equality   = comparison (("=" | "<>") comparison | IS [NOT] NULL)*
    comparison = unary ((">" | ">=" | "<" | "<=") unary | [NOT] BETWEEN unary AND unary
                        | [NOT] IN "(" string ("," string)* ")"
                        | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string)*
    unary      = ("+" | "-" | NOT) unary | primary
    primary    = string | number | TRUE | FALSE | NULL | name | "(" or ")"

So NOT binds tighter than a comparison: `NOT (a = 1)` needs its parentheses. Text after a complete
expression is rejected; RocketMQ ignores it and filters by the first part only.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from broker_core.codec.sql.java_numbers import LONG_MAX
from broker_core.codec.sql.tokens import (
    END,
    NAME,
    REAL,
    TEXT,
    WHOLE,
    Token,
    bad_expression,
    sql_tokens,
)
from broker_core.errors import InvalidSubscription

DEPTH_MAX: Final = 64
"""Maximum nesting of parentheses, signs and operators."""
OPERATORS_MAX: Final = 1000
TEXTS_MAX: Final = 4096
"""Strings of all IN lists together."""

CONSTANT: Final = "constant"
PROPERTY: Final = "property"
NEGATION: Final = "negation"
ORDERS: Final = frozenset((">", ">=", "<", "<="))
SEARCHES: Final = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))

# Kinds whose result is true, false or unknown. For constants, the value decides.
_LOGICAL: Final = ORDERS | SEARCHES | {"=", "IS NULL", "IN", "AND", "OR", "NOT", "CAST"}


class Node(NamedTuple):
    """An operator with its operands, or a leaf; `value` belongs to leaves, searches and lists."""

    kind: str
    operands: tuple[Any, ...] = ()
    value: Any = None
    negated: bool = False
    """For IN and searches: NOT IN …, which treats unknown unlike NOT (… IN …)."""
    depth: int = 1

    @property
    def is_logical(self) -> bool:
        """Whether its result is true, false or unknown."""
        if self.kind == CONSTANT:
            return self.value is None or isinstance(self.value, bool)
        return self.kind in _LOGICAL


class SqlTree(NamedTuple):
    """A parsed expression and the maximum number of operators and leaves per evaluation."""

    root: Node
    cost: int


def parse_sql(expression: str) -> SqlTree:
    """The tree of an expression; raises `InvalidSubscription` with position and reason."""
    return _Parser(expression).parse()


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = sql_tokens(expression)
        self._next = 0
        self._nesting = 0
        self._operators = 0
        self._leaves = 0
        self._texts = 0

    def parse(self) -> SqlTree:
        if self._peek().kind == END:
            raise InvalidSubscription("the SQL92 expression is empty")
        root = self._logical(self._or(), self._tokens[0])
        rest = self._tokens[self._next]
        is_comment = rest.kind == "-" and self._tokens[self._next + 1].kind == "-"
        if rest.kind != END and not is_comment:
            raise self._bad(rest, "the expression is complete before this")
        return SqlTree(root, self._operators + self._leaves)

    # Grammar

    def _or(self) -> Node:
        return self._chain("OR", self._and)

    def _and(self) -> Node:
        return self._chain("AND", self._equality)

    def _chain(self, word: str, part: Any) -> Node:
        """One node for a whole chain, so that a long chain is not a deep tree."""
        begin = self._peek()
        first: Node = part()
        if self._peek().kind != word:
            return first
        operands = [self._logical(first, begin)]
        while (token := self._peek()).kind == word:
            self._next += 1
            begin = self._peek()
            operands.append(self._logical(part(), begin))
            self._count(token)
        return self._node(token, word, tuple(operands))

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            token = self._peek()
            if token.kind in ("=", "<>"):
                self._next += 1
                left = self._equal(token, left, self._comparison())
                if token.kind == "<>":
                    left = self._node(token, "NOT", (left,))
            elif token.kind == "IS":
                self._next += 1
                is_not = self._take("NOT")
                self._expect("NULL")
                left = self._node(token, "IS NULL", (left,))
                if is_not:
                    left = self._node(token, "NOT", (left,))
            else:
                return left

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            token = self._peek()
            negated = token.kind == "NOT"
            if negated:
                # After an operand only NOT IN and the like can follow.
                self._next += 1
            word = self._peek().kind
            if word in ORDERS and not negated:
                self._next += 1
                left = self._order(token, word, left, self._unary())
            elif word == "BETWEEN":
                self._next += 1
                left = self._between(token, left, negated)
            elif word == "IN":
                self._next += 1
                left = self._in(token, left, negated)
            elif word in SEARCHES:
                self._next += 1
                text = self._expect(TEXT).text
                left = self._node(token, word, (left,), text, negated)
            elif negated:
                raise self._bad(self._peek(), "BETWEEN, IN or a search word must follow NOT here")
            else:
                return left

    def _unary(self) -> Node:
        token = self._peek()
        if token.kind not in ("+", "-", "NOT", "("):
            return self._leaf(token)
        self._next += 1
        self._nesting += 1
        if self._nesting > DEPTH_MAX:
            raise self._bad(token, f"nested more than {DEPTH_MAX} levels deep")
        begin = self._peek()
        if token.kind == "(":
            inner = self._or()
            self._expect(")")
        else:
            inner = self._unary()
        self._nesting -= 1
        if token.kind == "-":
            return self._node(token, NEGATION, (inner,))
        if token.kind == "NOT":
            return self._node(token, "NOT", (self._logical(inner, begin),))
        return inner

    def _leaf(self, token: Token) -> Node:
        self._next += 1
        self._leaves += 1
        if token.kind == NAME:
            return Node(PROPERTY, value=token.text)
        if token.kind == TEXT:
            return Node(CONSTANT, value=token.text)
        if token.kind == WHOLE:
            digits = token.text.rstrip("lL")
            if len(digits) > 19 or int(digits) > LONG_MAX:
                raise self._bad(token, "the number does not fit into 64 bits")
            return Node(CONSTANT, value=int(digits))
        if token.kind == REAL:
            value = float(token.text)
            if value == float("inf"):
                raise self._bad(token, "the number is too large")
            return Node(CONSTANT, value=value)
        if token.kind in ("TRUE", "FALSE"):
            return Node(CONSTANT, value=token.kind == "TRUE")
        if token.kind == "NULL":
            return Node(CONSTANT)
        self._next -= 1
        raise self._bad(token, "expected a property, a number, a string or (")

    # Operators and their checks

    def _equal(self, token: Token, left: Node, right: Node) -> Node:
        if Node(CONSTANT) in (left, right):
            raise self._bad(token, "nothing is equal to NULL: write IS NULL or IS NOT NULL")
        if left.kind == right.kind == CONSTANT and left.is_logical and not right.is_logical:
            raise self._bad(token, "TRUE and FALSE cannot be compared with numbers and strings")
        return self._node(token, "=", (left, right))

    def _order(self, token: Token, word: str, left: Node, right: Node) -> Node:
        for operand in (left, right):
            if operand.is_logical or (operand.kind == CONSTANT and isinstance(operand.value, str)):
                raise self._bad(token, "only numbers and properties can be ordered")
        return self._node(token, word, (left, right))

    def _between(self, token: Token, value: Node, negated: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if negated:
            parts = (self._order(token, "<", value, low), self._order(token, ">", value, high))
            return self._node(token, "OR", parts)
        parts = (self._order(token, ">=", value, low), self._order(token, "<=", value, high))
        # A negative number is an operator on a number, which RocketMQ does not check.
        if low.kind == high.kind == CONSTANT and low.value > high.value:
            raise self._bad(token, f"BETWEEN {low.value} AND {high.value} is empty")
        return self._node(token, "AND", parts)

    def _in(self, token: Token, left: Node, negated: bool) -> Node:
        if left.kind != PROPERTY:
            raise self._bad(token, "IN needs a property before it")
        self._expect("(")
        texts = [self._expect(TEXT).text]
        while self._take(","):
            texts.append(self._expect(TEXT).text)
        self._expect(")")
        self._texts += len(texts)
        if self._texts > TEXTS_MAX:
            raise self._bad(token, f"more than {TEXTS_MAX} strings in IN lists")
        return self._node(token, "IN", (left,), frozenset(texts), negated)

    def _logical(self, node: Node, begin: Token) -> Node:
        """`node` as a condition. A property alone is allowed (and never true), a number is not."""
        if node.kind == PROPERTY:
            return self._node(begin, "CAST", (node,))
        if not node.is_logical:
            raise self._bad(begin, "this is not a condition: add a comparison")
        return node

    def _node(
        self,
        token: Token,
        kind: str,
        operands: tuple[Node, ...],
        value: Any = None,
        negated: bool = False,
    ) -> Node:
        self._count(token)
        depth = 1 + max(operand.depth for operand in operands)
        if depth > DEPTH_MAX:
            raise self._bad(token, f"nested more than {DEPTH_MAX} levels deep")
        return Node(kind, operands, value, negated, depth)

    # Tokens

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self, kind: str) -> bool:
        if self._tokens[self._next].kind != kind:
            return False
        self._next += 1
        return True

    def _expect(self, kind: str) -> Token:
        token = self._tokens[self._next]
        if token.kind != kind:
            wanted = "a string in single quotes" if kind == TEXT else kind
            raise self._bad(token, f"expected {wanted}")
        self._next += 1
        return token

    def _count(self, token: Token) -> None:
        self._operators += 1
        if self._operators > OPERATORS_MAX:
            raise self._bad(token, f"more than {OPERATORS_MAX} operators")

    def _bad(self, token: Token, reason: str) -> InvalidSubscription:
        return bad_expression(self._expression, token.at, reason)
