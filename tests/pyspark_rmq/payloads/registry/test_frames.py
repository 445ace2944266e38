"""Frames before bodies."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_rmq.payloads.registry.frames import frame_ids, framed, packed_path, path_size


def test_ids() -> None:
    bodies = [b"", b"\0\0\0\0", b"\0\0\0\0\7", b"\1\0\0\0\7x", b"\0\xff\xff\xff\xffbody"]
    array = pa.array([b"skipped", *bodies], pa.binary())
    assert frame_ids(array.slice(1)).tolist() == [-1, -1, 7, -1, (1 << 32) - 1]
    assert frame_ids(pa.array([], pa.binary())).tolist() == []
    assert frame_ids(pa.array([b""], pa.binary())).tolist() == [-1]


def test_frames() -> None:
    values = framed(pa.array([b"a", b""], pa.binary()), 258)
    assert values.to_pylist() == [b"\0\0\0\1\2a", b"\0\0\0\1\2"]
    assert framed(pa.array([b"a"], pa.binary()), 1, [0]).to_pylist() == [b"\0\0\0\0\1\0a"]


@pytest.mark.parametrize("path", [[0], [1], [0, 0], [3, 200, 1]])
def test_paths(path: list[int]) -> None:
    packed = packed_path(path)
    assert path_size(b"xx" + packed + b"\7body", 2) == len(packed)
    assert packed_path([1, 0]) == b"\4\2\0"


def test_invalid_paths() -> None:
    for raw in (b"", b"\1", b"\4\2", b"\x80", b"\xff" * 9, b"\xfe\xff\xff\xff\x0f"):
        assert path_size(raw, 0) is None
