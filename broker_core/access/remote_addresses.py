"""White lists of peers without signature: RocketMQ's patterns, and networks like `10.0.0.0/8`.

10.1.2.3      one address              10.1.2.{3,4}   one of several last parts
10.1.*.*      any part                 10.1.2.3-40    a range; `*` after it is allowed
::1           IPv6, as a whole         *              any address
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable

from broker_core.errors import InvalidArgument

_PART = re.compile(r"\*|[0-9]{1,3}(?:-[0-9]{1,3})?|\{[0-9]{1,3}(?:,[0-9]{1,3})*\}")

Matches = Callable[[str], bool]


def address_pattern(text: str) -> Matches:
    """A function that tests addresses. Raises `InvalidArgument`."""
    text = text.strip()
    if text == "*":
        return lambda _: True
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return _by_parts(text)
    return lambda host: _is_in(host, network)


def any_pattern(texts: Iterable[str]) -> Matches:
    """Whether one of the patterns matches; False without patterns."""
    patterns = [address_pattern(text) for text in texts if text.strip()]
    return lambda host: any(matches(host) for matches in patterns)


def _is_in(host: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        return ipaddress.ip_address(host) in network
    except ValueError:
        return False


def _by_parts(text: str) -> Matches:
    pieces = text.split(".")
    if len(pieces) != 4 or not all(_PART.fullmatch(piece) for piece in pieces):
        raise InvalidArgument(f"{text!r:.100} is not an address, pattern or network")
    choices = [_choice(piece) for piece in pieces]

    def matches(host: str) -> bool:
        parts = host.split(".")
        return len(parts) == 4 and all(
            part.isascii() and part.isdigit() and int(part[:4]) in accepted
            for part, accepted in zip(parts, choices, strict=True)
        )

    return matches


def _choice(piece: str) -> frozenset[int] | range:
    if piece == "*":
        return range(256)
    if piece[0] == "{":
        return frozenset(map(int, piece[1:-1].split(",")))
    low, _, high = piece.partition("-")
    return range(int(low), int(high or low) + 1)
