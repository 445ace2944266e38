"""Compiled decoders beside the decoders in Python, on good and damaged bodies."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_rmq.payloads.bad_records import Decoded
from pyspark_rmq.payloads.nested_arrays import with_numbers

_ODD = (0x00, 0x01, 0x7F, 0x80, 0xC0, 0xC1, 0xFF, *b'"\\{}[]:,-.0e9nNuT \n')


def damaged(body: bytes, chance: Random) -> bytes:
    """The body with one to three bytes changed, cut, added or doubled."""
    found = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(found) + 1)
        size = chance.randint(1, 4)
        match chance.randrange(6):
            case 0:
                del found[at:]
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = bytes(chance.choice(_ODD) for _ in range(size))
            case 3:
                found[at:at] = found[at : at + 2 * size]
            case 4 if at < len(found):
                found[at] ^= 1 << chance.randrange(8)
            case _:
                found[at : at + 1] = bytes([chance.choice(_ODD)])
    return bytes(found)


def mixed(bodies: Sequence[bytes], chance: Random, count: int) -> list[bytes]:
    """`count` bodies: as they are, damaged, or random bytes."""
    found = []
    for _ in range(count):
        body = chance.choice(bodies)
        kind = chance.randrange(8)
        if kind == 0:
            body = chance.randbytes(chance.randrange(24))
        elif kind > 2:
            body = damaged(body, chance)
        found.append(body)
    return found


def shown(values: Any) -> list[str]:
    """Rows in a form in which NaN equals itself, and times may be outside of Python's years."""
    return [repr(row) for row in with_numbers(values).to_pylist()]


def assert_equal(decoder: Any, bodies: Sequence[bytes]) -> Decoded:
    """A batch, decoded at once, has the rows and reasons of each body by itself in Python."""
    given = pa.array(bodies, pa.binary())
    found = decoder.decode(given)
    expected = decoder.by_row(given)
    found.values.validate(full=True)
    assert shown(found.values) == shown(expected.values)
    assert [tuple(bad) for bad in found.bad] == [tuple(bad) for bad in expected.bad]
    return found


def accepted_alone(planned: Any, bodies: Sequence[bytes]) -> list[int]:
    """Which bodies are not refused, each decoded from memory of exactly its size."""
    found = []
    for place, body in enumerate(bodies):
        offsets = pa.py_buffer(np.array([0, len(body)], np.int32))
        exact = pa.py_buffer(array("B", body) if body else b"")
        one = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, exact])
        values, refused = planned.columns(one)
        values.validate(full=True)
        if not len(refused):
            found.append(place)
    return found


def fuzz(decoder: Any, planned: Any, bodies: Sequence[bytes], seed: int, count: int = 60) -> None:
    """Damaged bodies among good ones: all rows as in Python, alone and together."""
    chance = Random(seed)
    given = mixed(bodies, chance, count)
    bad = {row for row, _ in assert_equal(decoder, given).bad}
    assert not bad.intersection(accepted_alone(planned, given))


Fuzzed = Callable[[int], None]
