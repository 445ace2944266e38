"""Lines of standard input, however they are cut into chunks."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.messages import input_lines
from broker_core.cli.messages.input_lines import line_groups


def reader(*chunks: bytes | OSError) -> Callable[[int], bytes]:
    left = [*chunks, b""]

    def read(size: int) -> bytes:
        chunk = left.pop(0)
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    return read


async def collected(read: Callable[[int], bytes]) -> list[list[bytes]]:
    return [lines async for lines in line_groups(read)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_a_delimiter_may_be_cut(size: int, run_async: Callable[..., Any]) -> None:
    whole = b"a\r\nb--\n--c-\n----"
    chunks = [whole[first : first + size] for first in range(0, len(whole), size)]

    async def scenario() -> list[bytes]:
        groups = [lines async for lines in line_groups(reader(*chunks), b"--")]
        return [line for lines in groups for line in lines]

    assert run_async(scenario()) == [b"a\r\nb", b"\n", b"c-\n", b""]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([], []),
        ([b"a\n"], [[b"a"]]),
        ([b"a"], [[b"a"]]),
        ([b"a\nb\n"], [[b"a", b"b"]]),
        ([b"a\nb"], [[b"a"], [b"b"]]),
        ([b"a", b"b\nc", b"d"], [[b"ab"], [b"cd"]]),
        ([b"\n\n"], [[b"", b""]]),
        ([b"a\r\n", b"b\r", b"\n"], [[b"a"], [b"b"]]),
        ([b"a\rb\n"], [[b"a\rb"]]),
    ],
)
def test_lines(
    run_async: Callable[..., Any], chunks: list[bytes], expected: list[list[bytes]]
) -> None:
    assert run_async(collected(reader(*chunks))) == expected


@given(st.lists(st.binary(min_size=1, max_size=12)))
def test_any_cut_gives_the_same_lines(chunks: list[bytes]) -> None:
    import asyncio

    text = b"".join(chunks)
    whole = text.split(b"\n")
    if not whole[-1]:
        whole.pop()
    wanted = [line[:-1] if line.endswith(b"\r") else line for line in whole]
    groups = asyncio.run(collected(reader(*chunks)))
    assert [line for lines in groups for line in lines] == wanted


def test_a_read_error_is_raised(run_async: Callable[..., Any]) -> None:
    with pytest.raises(OSError, match="broken"):
        run_async(collected(reader(b"a\n", OSError(errno.EIO, "broken"))))


def test_an_endless_line_is_refused(
    run_async: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_lines, "LINE_SIZE_MAX", 10)
    with pytest.raises(CommandFailed, match="more than 10 bytes"):
        run_async(collected(reader(*[b"xxxx"] * 5)))


def test_input_is_not_read_far_ahead(run_async: Callable[..., Any]) -> None:
    reads = []
    may_read = threading.Semaphore(100)

    def read(size: int) -> bytes:
        may_read.acquire()
        reads.append(size)
        return b"line\n"

    async def first_group() -> int:
        groups = line_groups(read)
        await groups.__anext__()
        read_ahead = len(reads)
        await groups.aclose()
        return read_ahead

    assert run_async(first_group()) <= 5
    assert len(reads) <= 6
