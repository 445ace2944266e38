"""Frames for the tests of remoting: golden bytes of the protocol, and seeded mutations."""

from __future__ import annotations

import random

from broker_core.codec.wire.remoting_command import BINARY_HEADER, RemotingCommand, encode_command


def from_dump(dump: str) -> bytes:
    """Bytes of the hex columns of a dump; offsets and texts beside them are dropped."""
    found = bytearray()
    for line in dump.strip().splitlines():
        found += bytes.fromhex(line.strip()[6:54])
    return bytes(found)


ROUTE_REQUEST_JSON = from_dump(
    """
    0000  00 00 00 80 00 00 00 7c 7b 22 63 6f 64 65 22 3a  .......|{"code":
    0010  31 30 35 2c 22 65 78 74 46 69 65 6c 64 73 22 3a  105,"extFields":
    0020  7b 22 74 6f 70 69 63 22 3a 22 54 31 22 7d 2c 22  {"topic":"T1"},"
    0030  66 6c 61 67 22 3a 30 2c 22 6c 61 6e 67 75 61 67  flag":0,"languag
    0040  65 22 3a 22 4a 41 56 41 22 2c 22 6f 70 61 71 75  e":"JAVA","opaqu
    0050  65 22 3a 37 2c 22 73 65 72 69 61 6c 69 7a 65 54  e":7,"serializeT
    0060  79 70 65 43 75 72 72 65 6e 74 52 50 43 22 3a 22  ypeCurrentRPC":"
    0070  4a 53 4f 4e 22 2c 22 76 65 72 73 69 6f 6e 22 3a  JSON","version":
    0080  34 30 39 7d                                      409}
    """
)

ROUTE_REQUEST_BINARY = from_dump(
    """
    0000  00 00 00 26 01 00 00 22 00 69 03 01 99 00 00 00  ...&...".i......
    0010  07 00 00 00 00 00 00 00 00 00 00 00 0d 00 05 74  ...............t
    0020  6f 70 69 63 00 00 00 02 54 31                    opic....T1
    """
)

NO_ROUTE_RESPONSE_BINARY = from_dump(
    """
    0000  00 00 00 21 01 00 00 1d 00 11 03 01 99 00 00 00  ...!............
    0010  07 00 00 00 01 00 00 00 08 6e 6f 20 72 6f 75 74  .........no rout
    0020  65 00 00 00 00                                   e....
    """
)

# One stored message, as the body of a pull response carries it.
STORED_MESSAGE = from_dump(
    """
    0000  00 00 00 70 da a3 20 a7 58 93 2a ac 00 00 00 02  size 112, magic, crc, queueId 2
    0010  00 00 00 00 00 00 00 00 00 00 00 05 00 00 00 00  flag 0, queueOffset 5, phys...
    0020  00 00 04 00 00 00 00 00 00 00 01 8b cf e5 68 00  ...1024, sysFlag 0, born
    0030  0a 00 00 02 00 00 9c 40 00 00 01 8b cf e5 68 7b  bornHost, store
    0040  0a 00 00 01 00 00 2a 9f 00 00 00 00 00 00 00 00  storeHost, reconsume 0, prepared...
    0050  00 00 00 00 00 00 00 02 68 69 02 54 31 00 11 54  ...0, body 2 "hi", topic "T1", props 17
    0060  41 47 53 01 41 02 57 41 49 54 01 74 72 75 65 02  TAGS^A A ^B WAIT^A true ^B
    """
)

# Two messages, as the body of a batch send carries them.
BATCH_BODY = from_dump(
    """
    0000  00 00 00 1e 00 00 00 00 00 00 00 00 00 00 00 00  size 30, 0, 0, flag 0
    0010  00 00 00 01 61 00 07 54 41 47 53 01 41 02 00 00  body 1 'a', props 7 "TAGS^A A ^B"
    0020  00 18 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ...24, 0, 0, flag 0
    0030  00 02 62 63 00 00                                body 2 'bc', props 0
    """
)


def frame_bytes(command: RemotingCommand) -> bytes:
    """A whole frame."""
    return b"".join((encode_command(command), command.body))


def sample_frames() -> list[bytes]:
    """Frames of every kind that peers send, as the seeds of mutation."""
    send = {letter: f"value-{letter}" for letter in "abcdefghijklmn"}
    commands = [
        RemotingCommand(310, dict(send), b"x" * 100, opaque=1),
        RemotingCommand(320, dict(send), BATCH_BODY, opaque=2, serialize_type=BINARY_HEADER),
        RemotingCommand(34, None, b'{"clientID":"1@2"}', opaque=3),
        RemotingCommand(0, {"minOffset": "0"}, STORED_MESSAGE, opaque=4, flag=1),
        RemotingCommand(17, None, opaque=5, flag=1, remark='no "route" \\ ü'),
        RemotingCommand(15, {"commitOffset": "9"}, opaque=6, flag=2, serialize_type=BINARY_HEADER),
    ]
    return [
        ROUTE_REQUEST_JSON,
        ROUTE_REQUEST_BINARY,
        NO_ROUTE_RESPONSE_BINARY,
        *(frame_bytes(command) for command in commands),
    ]


def mutated(seed: bytes, rng: random.Random) -> bytes:
    """The seed with up to four flips, runs of noise, cuts, repeats or forged lengths."""
    data = bytearray(seed)
    # Millions of frames are made: `randrange` would take longer than the parser that is fed.
    drawn = rng.random
    for _ in range(1 + int(drawn() * 4)):
        kind = int(drawn() * 7)
        at = int(drawn() * len(data))
        if kind == 0 and data:
            data[at] ^= 1 << int(drawn() * 8)
        elif kind == 1 and data:
            data[at] = int(drawn() * 256)
        elif kind == 2:
            data[at:at] = rng.randbytes(1 + int(drawn() * 8))
        elif kind == 3:
            del data[at : at + 1 + int(drawn() * 8)]
        elif kind == 4:
            data[at:at] = data[at : at + 1 + int(drawn() * 32)]
        elif kind == 5 and len(data) >= 8:
            data[0:4] = _LENGTHS[int(drawn() * len(_LENGTHS))]
        elif kind == 6 and len(data) >= 8:
            data[4:8] = bytes((int(drawn() * 3), 0, *rng.randbytes(2)))
    return bytes(data)


_LENGTHS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x03",
    b"\x00\x00\x00\x04",
    b"\x00\xff\xff\xfc",
    b"\x00\xff\xff\xfd",
)


def framed(content: bytes) -> bytes:
    """A frame whose lengths fit again after a mutation, so that the header itself is tested."""
    if len(content) < 8:
        return content
    header_size = min(int.from_bytes(content[5:8], "big"), len(content) - 8)
    head = (len(content) - 4).to_bytes(4, "big") + bytes((content[4] & 1,))
    return head + header_size.to_bytes(3, "big") + content[8:]
