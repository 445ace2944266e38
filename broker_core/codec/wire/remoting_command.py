"""One command of the remoting protocol, and its two header forms.

    frame   = total_length i32 | serialize_type u8, header_length u24 | header | body
    JSON    = {"code":…,"extFields":{…},"flag":…,"language":…,"opaque":…,"version":…}
    binary  = code i16 | language u8 | version i16 | opaque i32 | flag i32
              | remark length i32, remark | map length i32, { key length i16, key,
              value length i32, value }…

Every value of the map is a string; other JSON values are converted. `frame_parser` splits the
stream into frames; this module gets complete headers only.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import orjson

from broker_core.codec.json.fields import I32_MAX, I32_MIN
from broker_core.errors import InvalidArgument, ProtocolViolation
from broker_core.protocol_codes import VERSION_4_9_8, LanguageCode

JSON_HEADER: Final = 0
BINARY_HEADER: Final = 1
RESPONSE_FLAG: Final = 1
ONEWAY_FLAG: Final = 2
HEADER_DEPTH_MAX: Final = 4

FRAME_HEAD = struct.Struct(">II")
"""Length of what follows it, and the header size with the serialization type in its top byte."""
_BINARY_FIXED = struct.Struct(">hBhiii")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")

_I16_MAX = (1 << 15) - 1
_HEADER_SIZE_MAX = (1 << 24) - 1

_LANGUAGE_OF_NAME: Mapping[str, LanguageCode] = dict(LanguageCode.__members__)
_LANGUAGE_OF_CODE: Mapping[int, LanguageCode] = {int(code): code for code in LanguageCode}
_LANGUAGE_TEXT: Mapping[int, bytes] = {int(code): code.name.encode() for code in LanguageCode}

_KNOWN_FIELDS: Final = frozenset(
    {
        "code",
        "extFields",
        "flag",
        "language",
        "opaque",
        "remark",
        "serializeTypeCurrentRPC",
        "version",
    }
)


class RemotingCommand:
    """A request or a response. `ext` is always a dict of strings, `body` is b"" when absent."""

    __slots__ = (
        "body",
        "code",
        "ext",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialize_type",
        "version",
    )

    def __init__(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        language: int = LanguageCode.PYTHON,
        version: int = VERSION_4_9_8,
        serialize_type: int = JSON_HEADER,
    ) -> None:
        self.code = code
        self.ext = {} if ext is None else ext
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.language = language
        self.version = version
        self.serialize_type = serialize_type

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no response."""
        return self.flag & ONEWAY_FLAG != 0

    def reply(
        self,
        code: int = 0,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> RemotingCommand:
        """The response to this request.

        The reply to a oneway request keeps the oneway bit, so that the connection drops it.
        """
        return RemotingCommand(
            code,
            ext,
            body,
            opaque=self.opaque,
            flag=RESPONSE_FLAG | (self.flag & ONEWAY_FLAG),
            remark=remark,
            serialize_type=self.serialize_type,
        )

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        sizes = f"ext={len(self.ext)} body={len(self.body)}"
        return f"<{kind} code={int(self.code)} opaque={self.opaque} {sizes}>"


def encode_command(command: RemotingCommand) -> bytes:
    """Frame head and header; `command.body` is counted and must follow."""
    if command.serialize_type == JSON_HEADER:
        header = _encode_json(command)
    elif command.serialize_type == BINARY_HEADER:
        header = _encode_binary(command)
    else:
        raise InvalidArgument(f"serialize type {command.serialize_type} is neither 0 nor 1")
    header_size = len(header)
    total_size = 4 + header_size + len(command.body)
    if header_size > _HEADER_SIZE_MAX or total_size > I32_MAX:
        raise InvalidArgument(f"a frame of {total_size} bytes cannot be written")
    return FRAME_HEAD.pack(total_size, command.serialize_type << 24 | header_size) + header


def decode_header(serialize_type: int, header: bytes | memoryview) -> RemotingCommand:
    """The command of a header, without its body. Raises `ProtocolViolation`."""
    if serialize_type == JSON_HEADER:
        return _decode_json(header)
    if serialize_type == BINARY_HEADER:
        return _decode_binary(bytes(header))
    raise ProtocolViolation(f"serialize type {serialize_type} is neither 0 nor 1")


def _encode_json(command: RemotingCommand) -> bytes:
    """Only the map and the remark need a JSON writer; the rest are numbers and fixed names."""
    ext = command.ext
    try:
        # A fast check that every value is a string; peers drop frames with other values.
        "".join(ext.values())
        fields = orjson.dumps(ext)
    except TypeError:
        raise InvalidArgument(f"ext fields must be strings: {ext!r:.200}") from None
    remark = b""
    if command.remark is not None:
        text = command.remark.encode("utf-8", "replace").decode("utf-8")
        remark = b'"remark":%b,' % orjson.dumps(text)
    try:
        return (
            b'{"code":%d,"extFields":%b,"flag":%d,"language":"%b","opaque":%d,%b'
            b'"serializeTypeCurrentRPC":"JSON","version":%d}'
        ) % (
            command.code,
            fields,
            command.flag,
            _LANGUAGE_TEXT[command.language],
            command.opaque,
            remark,
            command.version,
        )
    except (KeyError, TypeError) as error:
        raise InvalidArgument(f"{command!r} cannot be written: {error!r}") from None


def _encode_binary(command: RemotingCommand) -> bytes:
    if not -_I16_MAX - 1 <= command.code <= _I16_MAX:
        raise InvalidArgument(f"code {command.code} does not fit into a binary header")
    remark = b"" if command.remark is None else command.remark.encode("utf-8", "replace")
    try:
        fixed = _BINARY_FIXED.pack(
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
        entries: list[bytes] = []
        for key, value in command.ext.items():
            name, text = key.encode(), value.encode()
            if len(name) > _I16_MAX:
                raise InvalidArgument(f"ext field name of {len(name)} bytes: {key:.40}")
            entries += (_U16.pack(len(name)), name, _U32.pack(len(text)), text)
    except (AttributeError, UnicodeEncodeError, struct.error) as error:
        raise InvalidArgument(f"{command!r} cannot be written: {error}") from None
    block = b"".join(entries)
    return b"".join((fixed, remark, _U32.pack(len(block)), block))


def _decode_json(header: bytes | memoryview) -> RemotingCommand:
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError as error:
        raise ProtocolViolation(f"the header is not JSON: {error}") from None
    if type(fields) is not dict:
        raise ProtocolViolation("the header is not a JSON object")
    if not fields.keys() <= _KNOWN_FIELDS:
        _check_depth(fields)
    get = fields.get
    ext = get("extFields")
    if ext is None:
        ext = {}
    elif type(ext) is not dict:
        raise ProtocolViolation("extFields is not an object")
    else:
        try:
            # A fast check that every value is a string, as from all but Node clients.
            "".join(ext.values())
        except TypeError:
            ext = _as_texts(ext)
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        raise ProtocolViolation("remark is not a string")
    code, opaque = get("code", 0), get("opaque", 0)
    flag, version = get("flag", 0), get("version", 0)
    if not (
        type(code) is type(opaque) is type(flag) is type(version) is int
        and I32_MIN <= code <= I32_MAX
        and I32_MIN <= opaque <= I32_MAX
        and I32_MIN <= flag <= I32_MAX
        and I32_MIN <= version <= I32_MAX
    ):
        numbers = f"code {code!r:.40}, opaque {opaque!r:.40}, flag {flag!r:.40}, "
        raise ProtocolViolation(f"{numbers}version {version!r:.40} must be 32-bit numbers")
    return RemotingCommand(
        code,
        ext,
        opaque=opaque,
        flag=flag,
        remark=remark,
        language=_language(get("language")),
        version=version,
    )


def _language(found: object) -> LanguageCode:
    """The language of a peer; unknown ones are accepted."""
    if type(found) is str:
        return _LANGUAGE_OF_NAME.get(found, LanguageCode.OTHER)
    if type(found) is int:
        return _LANGUAGE_OF_CODE.get(found, LanguageCode.OTHER)
    return LanguageCode.OTHER


def _as_texts(ext: dict[str, Any]) -> dict[str, str]:
    """Raw numbers and booleans as the text they had in JSON; nulls are absent fields."""
    texts = {}
    for key, value in ext.items():
        if type(value) is str:
            texts[key] = value
        elif value is True or value is False:
            texts[key] = "true" if value else "false"
        elif isinstance(value, int | float):
            texts[key] = repr(value)
        elif value is not None:
            raise ProtocolViolation(f"ext field {key!r:.40} is neither text nor number")
    return texts


def _check_depth(fields: dict[str, Any]) -> None:
    """Unknown keys are ignored up to a limited depth."""
    level: list[Any] = [fields]
    for _ in range(HEADER_DEPTH_MAX):
        level = [
            item
            for outer in level
            for item in (outer.values() if type(outer) is dict else outer)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return
    raise ProtocolViolation(f"the header is nested deeper than {HEADER_DEPTH_MAX}")


def _decode_binary(header: bytes) -> RemotingCommand:
    end = len(header)
    try:
        code, language, version, opaque, flag, remark_size = _BINARY_FIXED.unpack_from(header)
        position = _BINARY_FIXED.size
        remark_end = position + remark_size
        if remark_size < 0 or remark_end > end:
            raise ProtocolViolation(f"remark of {remark_size} bytes in a header of {end}")
        remark = header[position:remark_end].decode() if remark_size else None
        (map_size,) = _U32.unpack_from(header, remark_end)
        position = remark_end + 4
        if position + map_size != end:
            raise ProtocolViolation(f"map of {map_size} bytes, {end - position} are left")
        ext = _decode_map(header, position)
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"the binary header is broken: {error}") from None
    return RemotingCommand(
        code,
        ext,
        opaque=opaque,
        flag=flag,
        remark=remark,
        language=_LANGUAGE_OF_CODE.get(language, LanguageCode.OTHER),
        version=version,
        serialize_type=BINARY_HEADER,
    )


def _decode_map(header: bytes, position: int) -> dict[str, str]:
    """Entries up to the end of the header."""
    end = len(header)
    ext: dict[str, str] = {}
    while position < end:
        (key_size,) = _U16.unpack_from(header, position)
        value_at = position + 2 + key_size
        (value_size,) = _U32.unpack_from(header, value_at)
        value_end = value_at + 4 + value_size
        if value_end > end:
            raise ProtocolViolation(f"a map entry ends {value_end - end} bytes past the header")
        key = header[position + 2 : value_at].decode()
        ext[key] = header[value_at + 4 : value_end].decode()
        position = value_end
    return ext
