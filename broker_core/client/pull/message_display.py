"""A message for display: one line of text or a small HTML table, always with its body."""

from __future__ import annotations

import datetime
import html
import json
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from broker_core.client.produce.outgoing_message import RESERVED_PROPERTIES
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import RmqError

_LINE_BODY_MAX: Final = 80
_PAGE_BODY_MAX: Final = 4_000
_HEX_BYTES_MAX: Final = 256
_TEXT: Final = "text"
_JSON: Final = "JSON"
_HEX: Final = "hex"
# Everything that moves a cursor or changes colours, without tabs and ends of lines. Joiners of
# emoji and wide spaces are text, although `isprintable` is false for them.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class Shown(Protocol):
    """The displayed attributes of a `ReceivedMessage`."""

    record: Any
    queue: MessageQueue

    @property
    def topic(self) -> str: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def keys(self) -> str: ...
    @property
    def tags(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def message_id(self) -> str: ...
    @property
    def body(self) -> bytes: ...


def body_text(body: bytes, *, pretty: bool = False) -> tuple[str, str]:
    """A body as text, and whether it is `JSON`, `text` or `hex`: not UTF-8, or with controls."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if _CONTROL.search(text) or (body and not text):
        shown = body[:_HEX_BYTES_MAX].hex(" ")
        return shown + (" …" if len(body) > _HEX_BYTES_MAX else ""), _HEX
    if text[:1] in ("{", "["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text, _TEXT
        return (json.dumps(found, ensure_ascii=False, indent=2) if pretty else text), _JSON
    return text, _TEXT


def message_line(message: Shown) -> str:
    """One line: where it is, key, tags and the beginning of the body."""
    fields = [f"{message.topic} {message.queue.queue_id}:{message.queue_offset}"]
    if message.keys:
        fields.append(f"key={_cut(message.keys, _LINE_BODY_MAX)!r}")
    if message.tags:
        fields.append(f"tags={_cut(message.tags, _LINE_BODY_MAX)!r}")
    fields.append(f"body={_line_body(message)}")
    return f"<message {' '.join(fields)}>"


def message_html(message: Shown) -> str:
    """A table with every field; all texts are escaped."""
    return html_facts(_facts(message))


def message_text(message: Shown) -> str:
    """The same for a terminal."""
    rows = [(name, _CONTROL.sub(_escaped, value)) for name, value in _facts(message)]
    width = max(len(name) for name, _ in rows)
    between = "\n" + " " * (width + 2)
    return "\n".join(f"{name:{width}}  {value.replace(chr(10), between)}" for name, value in rows)


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def _facts(message: Shown) -> list[tuple[str, str]]:
    body, kind, size = _page_body(message)
    moment = datetime.datetime.fromtimestamp(
        message.store_timestamp / 1000, datetime.timezone.utc
    ).isoformat(" ", "milliseconds")
    rows = [
        ("topic", message.topic),
        ("queue", f"{message.queue.queue_id} of {message.queue.broker_name}"),
        ("offset", str(message.queue_offset)),
        ("stored", moment),
        ("key", message.keys),
        ("tags", message.tags),
        ("properties", "\n".join(f"{n}={v}" for n, v in user_properties(message).items())),
        ("id", message.message_id),
        (f"body ({kind}, {size:,} B)", body),
    ]
    return [row for row in rows if row[1] or row[0].startswith("body")]


def user_properties(message: Shown) -> dict[str, str]:
    """Properties that the sender chose, without those of RocketMQ."""
    return {n: v for n, v in message.properties.items() if n not in RESERVED_PROPERTIES}


def html_facts(rows: list[tuple[str, str]]) -> str:
    """Names and values as a table; texts are escaped and keep their lines."""
    cells = "".join(
        '<tr><th style="text-align:left;vertical-align:top;white-space:nowrap">'
        f"{html.escape(name)}</th>"
        '<td style="text-align:left;white-space:pre-wrap;overflow-wrap:anywhere;'
        'font-family:monospace">'
        f"{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def _line_body(message: Shown) -> str:
    try:
        text, kind = body_text(message.body)
    except RmqError as error:
        return f"({error})"
    if kind == _HEX:
        return f"0x{_cut(text, _LINE_BODY_MAX)}"
    return repr(_cut(text, _LINE_BODY_MAX))


def _page_body(message: Shown) -> tuple[str, str, int]:
    try:
        text, kind = body_text(message.body, pretty=True)
    except RmqError as error:
        return f"({error})", "unreadable", len(message.record.body)
    return _cut(text, _PAGE_BODY_MAX), kind, len(message.body)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[:size]}…"
