"""JSON bodies as RocketMQ's Java side writes and reads them.

On top of JSON the reader accepts bare integers as keys, objects as keys and, where a body may come
from Java with one object in several places (`references=True`), `{"$ref":"$.a[0]"}`:

    {0:"a"}                        → {"0": "a"}, the same as a quoted key
    {{"queueId":0,"topic":"T"}:5}  → {(("queueId", 0), ("topic", "T")): 5}, pairs sorted by name
    {"a":[1],"b":{"$ref":"$.a"}}   → both names hold the same list

Of equal keys the last one wins, as in fastjson; JSON that grants permissions is parsed with
`unique_keys=True`. Size, depth and the number of values are limited. The writer never puts spaces
between tokens (the Go client splits the text), quotes integer keys and leaves out null fields.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping, Set
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, Final

import orjson

from broker_core.codec.json.fields import object_field
from broker_core.codec.json.references import resolve_references
from broker_core.errors import InvalidArgument, MalformedJson

SIZE_MAX: Final = 16 << 20
DEPTH_MAX: Final = 32
VALUES_MAX: Final = 1_000_000
# Object keys are read value by value in Python, which must not keep a server busy for long.
SLOW_VALUES_MAX: Final = 100_000

ObjectKey = tuple[tuple[str, Any], ...]

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BARE_KEY = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?=[ \t\n\r]*:)")
_STRING = re.compile(r'"([^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*)"')
# Strings come first so that their content is never taken for a key. One without an end runs to the
# end of the text: trying again behind each of its quotes would take quadratic time.
_BARE_KEY_OR_STRING = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    rb"|(?<=[{, \t\n\r])(-?(?:0|[1-9][0-9]{0,18}))(?=[ \t\n\r]*:)",
    re.DOTALL,
)
_LITERALS: Mapping[str, object] = {"true": True, "false": False, "null": None}
_LITERAL = re.compile(r"true|false|null")
_DIGITS_MAX = 400
# Object keys of one object with the same hash. Numbers have hashes that a sender can predict, and a
# table of equal ones takes quadratic time.
_SAME_HASH_MAX = 32


class RawKeyMap:
    """A map with objects as keys, in the order it is written: `{{"queueId":0,"topic":"T"}:5}`."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[Mapping[str, Any], Any]]) -> None:
        self.entries = list(entries)


def parse_json(
    data: bytes | memoryview,
    *,
    size_max: int = SIZE_MAX,
    depth_max: int = DEPTH_MAX,
    values_max: int = VALUES_MAX,
    unique_keys: bool = False,
    references: bool = False,
) -> Any:
    """Parse one JSON document; raises `MalformedJson`.

    Without `references`, `$ref` is an ordinary name.
    """
    text = bytes(data)
    if len(text) > size_max:
        raise MalformedJson(f"{len(text)} bytes of JSON, at most {size_max}")
    # Never fewer than there are values, at a fraction of the cost of building them.
    values = text.count(b",") + text.count(b"{") + text.count(b"[") + 1
    if values > values_max:
        raise MalformedJson(f"up to {values} JSON values, at most {values_max}")
    value: Any = _Absent
    if not unique_keys:
        value = _parse_standard(text, depth_max)
        if value is _Absent:
            value = _parse_standard(_BARE_KEY_OR_STRING.sub(_quoted_key, text), depth_max)
    if value is _Absent:
        if values > SLOW_VALUES_MAX:
            raise MalformedJson(f"not standard JSON, and up to {values} values")
        value = _DialectReader(text, depth_max, unique_keys).read()
    if references and (b"$ref" in text or b"\\u" in text):
        return resolve_references(value, len(text), depth_max)
    return value


def parse_object(data: bytes | memoryview, *, references: bool = False) -> Mapping[str, Any]:
    """Parse the body of a request or response, an object; null is an empty one.

    Raises `MalformedJson`, or `InvalidArgument` for any other value.
    """
    return object_field({"body": parse_json(data, references=references)}, "body")


def key_fields(key: str | ObjectKey) -> dict[str, Any]:
    """The fields of an object key, whether it came raw or as a string that holds JSON."""
    if isinstance(key, tuple):
        return dict(key)
    fields = parse_json(key.encode("utf-8", "replace"))
    if not isinstance(fields, dict):
        raise MalformedJson(f"{key!r:.80} is not an object")
    return fields


class _Absent:
    """Marks a document that is not standard JSON."""


def _quoted_key(found: re.Match[bytes]) -> bytes:
    return b'"%b"' % found[1] if found[1] is not None else found[0]


def _parse_standard(text: bytes, depth_max: int) -> Any:
    """Parse with orjson; `_Absent` if the text uses the dialect."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _Absent
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth_max):
        if not level:
            return value
        level = [
            item
            for outer in level
            for item in (outer.values() if type(outer) is dict else outer)
            if type(item) is dict or type(item) is list
        ]
    if level:
        raise MalformedJson(f"nested deeper than {depth_max}")
    return value


class _DialectReader:
    """Recursive descent over one text; the depth limit bounds the recursion."""

    def __init__(self, data: bytes, depth_max: int, unique_keys: bool) -> None:
        try:
            self._text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedJson(f"not UTF-8: {error}") from None
        self._depth_max = depth_max
        self._unique_keys = unique_keys
        self._position = 0

    def read(self) -> Any:
        value = self._value(0)
        self._skip_space()
        if self._position != len(self._text):
            raise self._unexpected("the end")
        return value

    def _unexpected(self, wanted: str) -> MalformedJson:
        found = self._text[self._position : self._position + 20] or "the end"
        return MalformedJson(f"{wanted} expected at character {self._position}, not {found!r}")

    def _skip_space(self) -> str:
        """Skip white space; returns the next character, "" at the end."""
        found = _SPACE.match(self._text, self._position)
        if found is not None:
            self._position = found.end()
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:
        first = self._skip_space()
        if first == "{":
            return self._object(depth + 1)
        if first == "[":
            return self._array(depth + 1)
        if first == '"':
            return self._string()
        literal = _LITERAL.match(self._text, self._position)
        if literal is not None:
            self._position = literal.end()
            return _LITERALS[literal[0]]
        return self._number()

    def _enter(self, depth: int) -> None:
        if depth > self._depth_max:
            raise MalformedJson(f"nested deeper than {self._depth_max}")
        self._position += 1

    def _object(self, depth: int) -> dict[Any, Any]:
        self._enter(depth)
        found: dict[Any, Any] = {}
        hashes: dict[int, int] = {}
        if self._skip_space() == "}":
            self._position += 1
            return found
        while True:
            key = self._key(depth)
            if not isinstance(key, str):
                count = hashes[hash(key)] = hashes.get(hash(key), 0) + 1
                if count > _SAME_HASH_MAX:
                    raise MalformedJson(f"more than {_SAME_HASH_MAX} object keys with one hash")
            if self._skip_space() != ":":
                raise self._unexpected("':'")
            self._position += 1
            value = self._value(depth)
            if self._unique_keys and key in found:
                raise MalformedJson(f"the key {key!r:.80} appears twice")
            found[key] = value
            if not self._another("}"):
                return found

    def _array(self, depth: int) -> list[Any]:
        self._enter(depth)
        found: list[Any] = []
        if self._skip_space() == "]":
            self._position += 1
            return found
        while True:
            found.append(self._value(depth))
            if not self._another("]"):
                return found

    def _another(self, closing: str) -> bool:
        after = self._skip_space()
        if after != "," and after != closing:
            raise self._unexpected(f"',' or {closing!r}")
        self._position += 1
        return after == ","

    def _key(self, depth: int) -> str | ObjectKey:
        first = self._skip_space()
        if first == '"':
            return self._string()
        if first == "{":
            key = _frozen(self._object(depth + 1))
            assert isinstance(key, tuple)
            return key
        bare = _BARE_KEY.match(self._text, self._position)
        if bare is None:
            raise self._unexpected("a key")
        self._position = bare.end()
        return str(int(bare[0]))

    def _string(self) -> str:
        found = _STRING.match(self._text, self._position)
        if found is None:
            raise self._unexpected("a string")
        self._position = found.end()
        inside = found[1]
        if "\\" not in inside:
            return inside
        try:
            text: str = orjson.loads(found[0])
        except orjson.JSONDecodeError as error:
            raise MalformedJson(f"{found[0]:.40}: {error}") from None
        return text

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._position)
        if found is None:
            raise self._unexpected("a value")
        literal = found[0]
        if len(literal) > _DIGITS_MAX:
            raise MalformedJson(f"a number of {len(literal)} digits, at most {_DIGITS_MAX}")
        self._position = found.end()
        if found[1] is None and found[2] is None:
            whole = int(literal)
            if -(1 << 63) <= whole < 1 << 64:
                return whole
        number = float(literal)
        if math.isinf(number):
            raise MalformedJson(f"{literal:.40} is out of range")
        return number


def _frozen(value: Any) -> Any:
    """A hashable form of a key: objects become pairs sorted by name, lists become tuples."""
    if isinstance(value, dict):
        # Keys are strings, or tuples where an object key holds an object key.
        pairs = [(key, _frozen(item)) for key, item in value.items()]
        return tuple(sorted(pairs, key=lambda pair: repr(pair[0])))
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


def emit_json(value: Any, *, ascii_only: bool = False) -> bytes:
    """Compact JSON: integer keys quoted, null fields left out, enums by name, sets as arrays.

    `ascii_only` escapes all other characters, as RocketMQ writes standard route bodies.
    """
    quote = encode_basestring_ascii if ascii_only else encode_basestring
    parts: list[str] = []
    _emit(value, parts, quote, 0)
    try:
        return "".join(parts).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(
            "a string contains a lone surrogate, which UTF-8 cannot encode"
        ) from None


def _emit(value: Any, parts: list[str], quote: Any, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidArgument(f"nested deeper than {DEPTH_MAX}")
    if value is None:
        parts.append("null")
    elif isinstance(value, enum.Enum):
        parts.append(quote(value.name))
    elif isinstance(value, str):
        parts.append(quote(value))
    elif value is True or value is False:
        parts.append("true" if value else "false")
    elif isinstance(value, int):
        parts.append(str(int(value)))
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgument(f"{value!r} is not JSON")
        parts.append(repr(value))
    elif isinstance(value, RawKeyMap):
        _emit_raw_key_map(value, parts, quote, depth)
    elif isinstance(value, Mapping):
        _emit_object(value, parts, quote, depth)
    elif isinstance(value, Set):
        _emit_array(sorted(value), parts, quote, depth)
    elif isinstance(value, list | tuple):
        _emit_array(value, parts, quote, depth)
    else:
        raise InvalidArgument(f"{type(value).__name__} has no JSON form")


def _emit_object(value: Mapping[Any, Any], parts: list[str], quote: Any, depth: int) -> None:
    separator = "{"
    for key, item in value.items():
        if item is None:
            continue
        if isinstance(key, enum.Enum):
            key = key.name
        elif type(key) is int:
            key = str(key)
        elif not isinstance(key, str):
            raise InvalidArgument(f"{key!r:.80} cannot be a JSON key")
        parts += (separator, quote(key), ":")
        _emit(item, parts, quote, depth + 1)
        separator = ","
    parts.append("{}" if separator == "{" else "}")


def _emit_raw_key_map(value: RawKeyMap, parts: list[str], quote: Any, depth: int) -> None:
    separator = "{"
    for key, item in value.entries:
        parts.append(separator)
        _emit_object(key, parts, quote, depth + 1)
        parts.append(":")
        _emit(item, parts, quote, depth + 1)
        separator = ","
    parts.append("{}" if separator == "{" else "}")


def _emit_array(value: Iterable[Any], parts: list[str], quote: Any, depth: int) -> None:
    separator = "["
    for item in value:
        parts.append(separator)
        _emit(item, parts, quote, depth + 1)
        separator = ","
    parts.append("[]" if separator == "[" else "]")
