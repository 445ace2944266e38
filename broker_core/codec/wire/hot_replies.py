"""Frame heads of the two most frequent responses: a stored message and a pull.

The same bytes as `encode_command` produces for the same response with a JSON header, but from
prepared pieces. For numbers and plain ASCII only; everything else goes through `encode_command`.
"""

from __future__ import annotations

from typing import Final

from broker_core.codec.wire.remoting_command import FRAME_HEAD
from broker_core.protocol_codes import VERSION_4_9_8

# The end of every header, behind the request's id.
REPLY_ENDING: Final = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION_4_9_8
_TAIL: Final = b'},"flag":1,"language":"PYTHON","opaque":%d' + REPLY_ENDING
_SENT: Final = b'{"code":0,"extFields":{%b"msgId":"%b","queueId":"%d","queueOffset":"%d"%b' + _TAIL
_PULLED: Final = (
    b'{"code":%d,"extFields":{"nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d",'
    b'"suggestWhichBrokerId":"%d"' + _TAIL
)


def sent_reply(
    opaque: int,
    constants: bytes,
    message_id: bytes,
    queue_id: int,
    queue_offset: int,
    transaction_id: bytes,
) -> bytes:
    """A whole frame. `constants` are further fields as JSON text with a comma at the end.

    An empty transaction id adds no field.
    """
    transaction = b',"transactionId":"%b"' % transaction_id if transaction_id else b""
    header = _SENT % (
        constants, message_id, queue_id, queue_offset, transaction, opaque
    )  # fmt: skip
    size = len(header)
    return FRAME_HEAD.pack(4 + size, size) + header


def pulled_reply(
    opaque: int,
    code: int,
    next_offset: int,
    offsets: tuple[int, int],
    broker_id: int,
    body_size: int,
) -> bytes:
    """The head of a frame whose body follows."""
    header = _PULLED % (code, next_offset, *offsets, broker_id, opaque)
    size = len(header)
    return FRAME_HEAD.pack(4 + size + body_size, size) + header
