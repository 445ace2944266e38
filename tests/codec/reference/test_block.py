"""Buffers for received bodies, of both backends."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.codec.codec_backends import BACKENDS


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [0, 1, 32_767, 32_768, 1 << 20])
def test_all_of_it_can_be_written_and_read(backend: ModuleType, size: int) -> None:
    buffer = backend.new_buffer(size)
    assert (len(buffer), buffer.readonly, buffer.format) == (size, False, "B")
    buffer[:] = b"x" * size
    assert bytes(buffer.toreadonly()) == b"x" * size
