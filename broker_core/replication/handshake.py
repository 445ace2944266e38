"""The handshake of two brokers of this project before a log is copied. Pure.

    slave -> master   MAGIC, 16 random bytes, hello     identity of the slave
    master -> slave   MAGIC, 16 random bytes, welcome   identity of the master, its log and epochs
    slave -> master   claim      end of the slave's log, its epochs, checksum of its last bytes
    master -> slave   verdict    accepted, then frames follow
    master -> slave   refused    instead of welcome or verdict; the connection ends with it

    message   u32 size of the body, 32 bytes HMAC-SHA-256 (zeros without a key), body (msgpack)

The magic is not a valid position: as RocketMQ's i64 it is negative. So the first eight bytes tell a
master whether a slave is ours or Apache's. With a key, every message after the hello is
signed together with both sides' random bytes, so that nothing can be replayed.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]

from broker_core.errors import ReplicationRefused
from broker_core.replication.log_epochs import EPOCHS_MAX, Epoch

MAGIC: Final = b"\xffRMQHA1\n"
NONCE_SIZE: Final = 16
MESSAGE_SIZE_MAX: Final = 1 << 20
# Bytes before a slave's end whose checksum both sides compare.
WINDOW_SIZE: Final = 1 << 20

_HEAD: Final = struct.Struct(">I32s")
_NO_MAC: Final = bytes(32)


class Identity(NamedTuple):
    """Group, id and store of a broker."""

    cluster_name: str
    broker_name: str
    broker_id: int
    store_id: str


class Hello(NamedTuple):
    """Introduction of a slave; `seen` is the highest epoch that it knows of."""

    identity: Identity
    seen: int


class Welcome(NamedTuple):
    """Description of a master's log."""

    identity: Identity
    start: int
    end: int
    file_size: int
    epochs: tuple[Epoch, ...]
    relies_on_slaves: bool = False
    """Messages are acknowledged once slaves have them, even before the master's disk has them."""


class Claim(NamedTuple):
    """Position from which a slave asks to continue, and the proof that the logs agree."""

    position: int
    window_start: int
    checksum: int
    epochs: tuple[Epoch, ...]


class Verdict(NamedTuple):
    """Frames follow from `position` on."""

    position: int


HandshakeMessage = Hello | Welcome | Claim | Verdict
_KINDS: Final[Mapping[str, type[Any]]] = {
    "hello": Hello,
    "welcome": Welcome,
    "claim": Claim,
    "verdict": Verdict,
}


class Signing(NamedTuple):
    """The shared key, if any, and the random bytes of this connection."""

    key: bytes = b""
    nonces: bytes = b""

    def mac(self, body: bytes) -> bytes:
        """HMAC over the random bytes and the body; zeros without a key."""
        if not self.key:
            return _NO_MAC
        return hmac.digest(self.key, b"rmq-ha-1" + self.nonces + body, hashlib.sha256)


def encode_handshake(message: HandshakeMessage, signing: Signing) -> bytes:
    """One message."""
    kind = type(message).__name__.lower()
    return _encode({"kind": kind, "fields": _plain(message)}, signing)


def encode_refusal(refusal: ReplicationRefused, signing: Signing) -> bytes:
    """A refusal, sent instead of an answer before the connection is closed."""
    return _encode({"kind": "refused", "fields": (refusal.kind, str(refusal)[:1000])}, signing)


class HandshakeParser:
    """Cuts a stream into messages; `rest` has the bytes after the last one."""

    def __init__(self) -> None:
        self.rest = b""

    def receive(self, data: bytes | memoryview) -> None:
        """Add received bytes."""
        self.rest += bytes(data)
        if len(self.rest) > MESSAGE_SIZE_MAX + _HEAD.size:
            raise ReplicationRefused("protocol", "a handshake of more than a megabyte")

    def take(self, size: int) -> bytes | None:
        """The next `size` bytes; None while there are fewer."""
        if len(self.rest) < size:
            return None
        found, self.rest = self.rest[:size], self.rest[size:]
        return found

    def next(self, wanted: type[Any], signing: Signing) -> Any:
        """The next message, None while it is incomplete; raises a refusal, ours or theirs."""
        if len(self.rest) < _HEAD.size:
            return None
        size, mac = _HEAD.unpack_from(self.rest)
        if size > MESSAGE_SIZE_MAX:
            raise ReplicationRefused("protocol", f"a handshake message of {size} bytes")
        if len(self.rest) < _HEAD.size + size:
            return None
        body = self.rest[_HEAD.size : _HEAD.size + size]
        self.rest = self.rest[_HEAD.size + size :]
        kind, fields = _decode(body)
        if kind == "refused":
            # A peer that refuses because of the key cannot sign with it.
            raise ReplicationRefused(
                _text(fields[0]), f"rejected by the other broker: {_text(fields[1])}"
            )
        if not hmac.compare_digest(mac, signing.mac(body)):
            raise ReplicationRefused(
                "key",
                "the two brokers have different haAuthKey values, or only one of them has a key",
            )
        if _KINDS.get(kind) is not wanted:
            raise ReplicationRefused(
                "protocol", f"received {kind!r:.40} instead of {wanted.__name__}"
            )
        return _typed(wanted, fields)


def _encode(message: Mapping[str, Any], signing: Signing) -> bytes:
    body = msgpack.packb(message)
    return _HEAD.pack(len(body), signing.mac(body)) + bytes(body)


def _plain(value: Any) -> Any:
    return tuple(_plain(item) for item in value) if isinstance(value, tuple) else value


def _decode(body: bytes) -> tuple[str, tuple[Any, ...]]:
    try:
        message = msgpack.unpackb(body, use_list=False)
        kind, fields = message["kind"], message["fields"]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise _malformed(error) from None
    if not isinstance(kind, str) or not isinstance(fields, tuple) or not fields:
        raise _malformed("no fields")
    return kind, fields


def _typed(wanted: type[Any], fields: tuple[Any, ...]) -> Any:
    try:
        if wanted is Hello:
            identity, seen = fields
            return Hello(_identity(identity), _number(seen))
        if wanted is Welcome:
            identity, start, end, size, epochs, relies = fields
            numbers = (_number(start), _number(end), _number(size))
            return Welcome(_identity(identity), *numbers, _epochs(epochs), relies is True)
        if wanted is Claim:
            position, window, checksum, epochs = fields
            numbers = (_number(position), _number(window), _number(checksum))
            return Claim(*numbers, _epochs(epochs))
        return Verdict(_number(fields[0]))
    except (ValueError, TypeError) as error:
        raise _malformed(error) from None


def _identity(fields: Any) -> Identity:
    cluster, broker, broker_id, store_id = fields
    return Identity(_text(cluster), _text(broker), _number(broker_id), _text(store_id))


def _epochs(entries: Any) -> tuple[Epoch, ...]:
    epochs = tuple(Epoch(_number(n), _text(owner), _number(at)) for n, owner, at in entries)
    numbers = [epoch.number for epoch in epochs]
    starts = [epoch.start for epoch in epochs]
    if len(epochs) > EPOCHS_MAX or numbers != sorted(set(numbers)) or starts != sorted(starts):
        raise ValueError("epochs do not increase")
    return epochs


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is not a position")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 2000:
        raise _malformed(f"{value!r:.40} is not a string")
    return value


def _malformed(reason: object) -> ReplicationRefused:
    return ReplicationRefused("protocol", f"a malformed handshake: {reason!s:.100}")
