"""The two signatures of a request: RocketMQ's, and one that also prevents replay.

    Signature    Base64(HMAC-SHA1(secret, values of the sorted ext fields ‖ body)). RocketMQ's.
                 It covers neither names nor lengths nor the request code, and a copy of a request
                 is as valid as the original.
    RmqAuth      time ":" session ":" sequence ":" Base64(HMAC-SHA256(secret, everything)).
                 Ours. Covers code, opaque, flag, the three fields before it, each name and value
                 with its length, and the body.

A request may have both: RocketMQ's is made last and covers all other fields.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
STRICT_AUTH: Final = "RmqAuth"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"

# Fields on which implementations differ: 4.9 servers leave the first out, Go clients the second.
_LEFT_OUT_BY_SOME: Final = (UNIQUE_KEY_QUERY, SECURITY_TOKEN)
_NOT_IN_STRICT: Final = frozenset({SIGNATURE, STRICT_AUTH})
_STRICT_HEAD: Final = struct.Struct(">4siiiQQ")
_STRICT_MAGIC: Final = b"RMQ2"
_SIZE: Final = struct.Struct(">I")
_AUTH_SIZE_MAX: Final = 160


class StrictStamp(NamedTuple):
    """When a request was signed, and its place in the sequence of its connection."""

    time_ms: int
    session: str
    """16 random bytes in hexadecimal, chosen by the client for one connection."""
    sequence: int
    """Rises with every request of the connection."""


def rocketmq_signature(
    secret: bytes, ext: Mapping[str, str], body: bytes | memoryview, left_out: Iterable[str] = ()
) -> str:
    """The `Signature` of these fields; the field itself is not covered."""
    omitted = {SIGNATURE, *left_out}
    mac = hmac.new(secret, digestmod=hashlib.sha1)
    mac.update("".join([ext[name] for name in sorted(ext) if name not in omitted]).encode())
    mac.update(body)
    return base64.b64encode(mac.digest()).decode("ascii")


def has_rocketmq_signature(secret: bytes, ext: Mapping[str, str], body: bytes | memoryview) -> bool:
    """Whether `Signature` is valid for any of RocketMQ's clients."""
    given = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    is_valid = False
    disputed = [name for name in _LEFT_OUT_BY_SOME if name in ext]
    choices: list[tuple[str, ...]] = [(), *((name,) for name in disputed)]
    if len(disputed) > 1:
        choices.append(tuple(disputed))
    for left_out in choices:
        wanted = rocketmq_signature(secret, ext, body, left_out)
        is_valid |= hmac.compare_digest(wanted.encode(), given)
    return is_valid


def same_text(wanted: str, given: str) -> bool:
    """Constant-time comparison."""
    return hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace"))


def strict_auth(
    secret: bytes,
    code: int,
    opaque: int,
    flag: int,
    ext: Mapping[str, str],
    body: bytes | memoryview,
    stamp: StrictStamp,
) -> str:
    """The value of `RmqAuth`."""
    mac = hmac.new(secret, digestmod=hashlib.sha256)
    mac.update(_STRICT_HEAD.pack(_STRICT_MAGIC, code, opaque, flag, stamp.time_ms, stamp.sequence))
    mac.update(stamp.session.encode("ascii"))
    pieces: list[bytes] = []
    for name in sorted(ext):
        if name not in _NOT_IN_STRICT:
            key, value = name.encode(), ext[name].encode()
            pieces += (_SIZE.pack(len(key)), key, _SIZE.pack(len(value)), value)
    mac.update(b"".join(pieces))
    mac.update(body)
    digest = base64.b64encode(mac.digest()).decode("ascii")
    return f"{stamp.time_ms}:{stamp.session}:{stamp.sequence}:{digest}"


def parse_strict_auth(text: str) -> StrictStamp | None:
    """The content of a value of `RmqAuth`; None when it is malformed."""
    parts = text.split(":") if len(text) <= _AUTH_SIZE_MAX and text.isascii() else []
    if len(parts) != 4:
        return None
    time_ms, session, sequence, _ = parts
    is_number = all(part.isdigit() and len(part) <= 18 for part in (time_ms, sequence))
    if not is_number or len(session) != 32 or not session.isalnum():
        return None
    return StrictStamp(int(time_ms), session, int(sequence))
