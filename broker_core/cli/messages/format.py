"""How a message is printed: a format with tokens, or one JSON object per line. Pure.

    %t topic      %p queue id      %o offset       %b broker name
    %k keys       %g tags          %h properties   %i message id
    %s body       %S its size      %T store time   %B born time     (epoch milliseconds)
    %% percent    \\n \\r \\t \\\\ \\0 \\xHH as in C

The body is printed as raw bytes, everything else as UTF-8.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from broker_core.codec.records.message_properties import SHARDING_KEY


class PrintableQueue(Protocol):
    """Where a message is."""

    @property
    def broker_name(self) -> str:
        """The broker."""

    @property
    def queue_id(self) -> int:
        """The number of the queue."""


class PrintableMessage(Protocol):
    """Interface of a message that can be printed; messages of `broker_core.client` have it."""

    @property
    def queue(self) -> PrintableQueue:
        """Where it is."""

    @property
    def topic(self) -> str:
        """What it was sent to."""

    @property
    def queue_offset(self) -> int:
        """Its number in its queue."""

    @property
    def message_id(self) -> str:
        """Its id."""

    @property
    def keys(self) -> str:
        """Separated by spaces."""

    @property
    def tags(self) -> str:
        """The tag."""

    @property
    def body(self) -> bytes:
        """As it was sent."""

    @property
    def store_timestamp(self) -> int:
        """Epoch milliseconds."""

    @property
    def born_timestamp(self) -> int:
        """Epoch milliseconds."""

    @property
    def properties(self) -> Mapping[str, str]:
        """All of them."""


Render: TypeAlias = Callable[[Any], bytes]

_TOKEN = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


def _text(value: object) -> bytes:
    return str(value).encode("utf-8", "replace")


def _property_list(message: PrintableMessage) -> bytes:
    return _text(",".join(f"{name}={value}" for name, value in message.properties.items()))


_TOKENS: Final[Mapping[str, Render]] = {
    "t": lambda message: _text(message.topic),
    "p": lambda message: _text(message.queue.queue_id),
    "o": lambda message: _text(message.queue_offset),
    "b": lambda message: _text(message.queue.broker_name),
    "k": lambda message: _text(message.keys),
    "g": lambda message: _text(message.tags),
    "h": _property_list,
    "i": lambda message: _text(message.message_id),
    "s": lambda message: bytes(message.body),
    "S": lambda message: _text(len(message.body)),
    "T": lambda message: _text(message.store_timestamp),
    "B": lambda message: _text(message.born_timestamp),
}


def parse_format(text: str) -> Render:
    """A function that formats messages by `text`; ValueError names an invalid token."""
    parts: list[bytes | Render] = []
    end = 0
    for found in _TOKEN.finditer(text):
        parts.append(_text(text[end : found.start()]))
        parts.append(_part(*found.groups()))
        end = found.end()
    parts.append(_text(text[end:]))

    def render(message: PrintableMessage) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in parts)

    return render


def _part(token: str | None, digits: str | None, escape: str | None) -> bytes | Render:
    if digits is not None:
        return bytes.fromhex(digits)
    if escape is not None:
        if escape not in _ESCAPES:
            raise ValueError(f"\\{escape} is not one of \\n \\r \\t \\\\ \\0 \\xHH")
        return _ESCAPES[escape]
    if token == "%":
        return b"%"
    render = _TOKENS.get(token or "")
    if render is None:
        accepted = " ".join(f"%{name}" for name in _TOKENS)
        raise ValueError(f"%{token} is not one of {accepted} %%")
    return render


def json_line(message: PrintableMessage) -> bytes:
    """One object and a line end; `bodyEncoding` says whether `body` is text or base64."""
    try:
        body, encoding = bytes(message.body).decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode("ascii"), "base64"
    shown = {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "messageId": message.message_id,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "keys": message.keys,
        "tags": message.tags,
        "shardingKey": message.properties.get(SHARDING_KEY, ""),
        "properties": dict(message.properties),
        "body": body,
        "bodyEncoding": encoding,
    }
    return _text(json.dumps(shown, ensure_ascii=False, separators=(",", ":"))) + b"\n"
