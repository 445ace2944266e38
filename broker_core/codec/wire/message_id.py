"""Offset message id: store host and log position of a message in upper-case hex.

32 characters for an IPv4 store host, 56 for IPv6. Not the client's UNIQ_KEY.
"""

from __future__ import annotations

import re

from broker_core.codec.records.host_address import HostAddress, decode_host, encode_host
from broker_core.errors import InvalidArgument

_HEX_ID = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")


def encode_message_id(store_host: HostAddress, position: int) -> str:
    """Id of the message that the broker at `store_host` stored at log `position`."""
    if not 0 <= position < 1 << 63:
        raise InvalidArgument(f"log position {position} is out of range")
    return (encode_host(store_host) + position.to_bytes(8, "big")).hex().upper()


def decode_message_id(message_id: str) -> tuple[HostAddress, int]:
    """Store host and log position; either case of the hex digits is accepted."""
    if _HEX_ID.fullmatch(message_id) is None:
        raise InvalidArgument(f"message id {message_id[:64]!r} must be 32 or 56 hex digits")
    raw = bytes.fromhex(message_id)
    position = int.from_bytes(raw[-8:], "big", signed=True)
    if position < 0:
        raise InvalidArgument(f"message id {message_id!r} has a negative log position")
    return decode_host(raw[:-8]), position
