"""Every compression that clients use, and decompression bombs."""

from __future__ import annotations

import contextlib
import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records import compression
from broker_core.codec.records.compression import compress_body, decompress_body
from broker_core.codec.records.message_record import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from broker_core.errors import CodecMissing, DecompressionFailed, InvalidArgument

MIB = 1 << 20


def _zstd_stream(body: bytes) -> bytes:
    """Without the content size in the header, as Java's stream writes it."""
    stream = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    return stream.compress(body) + stream.flush()


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "legacy zlib": (0, compress_body),
    "zlib": (COMPRESSION_ZLIB, compress_body),
    "lz4": (COMPRESSION_LZ4, lz4.frame.compress),
    "zstd": (COMPRESSION_ZSTD, zstandard.ZstdCompressor().compress),
    "zstd stream": (COMPRESSION_ZSTD, _zstd_stream),
}

each_codec = pytest.mark.parametrize(("kind", "compress"), list(CODECS.values()), ids=list(CODECS))


@given(st.binary(max_size=3_000), st.sampled_from(list(CODECS)))
def test_what_went_in_comes_out(body: bytes, codec: str) -> None:
    kind, compress = CODECS[codec]
    assert decompress_body(compress(body), COMPRESSED | kind, 3_000) == body


def test_a_plain_body_stays_as_it_is() -> None:
    assert decompress_body(b"plain", 0, 1) == b"plain"
    assert decompress_body(memoryview(b"plain"), COMPRESSION_ZSTD, 1) == b"plain"


@each_codec
def test_the_limit_is_the_largest_size_that_passes(
    kind: int, compress: Callable[[bytes], bytes]
) -> None:
    body = bytes(range(256)) * 64
    packed = compress(body)
    assert decompress_body(packed, COMPRESSED | kind, len(body)) == body
    with pytest.raises(DecompressionFailed, match=str(len(body) - 1)):
        decompress_body(packed, COMPRESSED | kind, len(body) - 1)


@each_codec
def test_a_bomb_takes_no_more_memory_than_its_limit(
    kind: int, compress: Callable[[bytes], bytes]
) -> None:
    bomb = compress(bytes(256 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionFailed):
            decompress_body(bomb, COMPRESSED | kind, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The bomb itself, if a codec needs it as bytes, and one more buffer.
    assert peak < len(bomb) + 4 * MIB


@each_codec
def test_every_cut_is_found(kind: int, compress: Callable[[bytes], bytes]) -> None:
    packed = compress(b"some text that is compressed " * 20)
    for size in range(len(packed)):
        with pytest.raises(DecompressionFailed):
            decompress_body(packed[:size], COMPRESSED | kind, 10_000)


@each_codec
@given(garbage=st.binary(max_size=200))
def test_garbage_is_an_error_of_ours(
    kind: int, compress: Callable[[bytes], bytes], garbage: bytes
) -> None:
    for data in (garbage, compress(b"x" * 50)[:10] + garbage):
        with contextlib.suppress(DecompressionFailed):
            decompress_body(data, COMPRESSED | kind, 1_000)


def test_a_window_larger_than_the_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = stream.compress(b"small") + stream.flush()
    with pytest.raises(DecompressionFailed, match="Zstandard"):
        decompress_body(packed, COMPRESSED | COMPRESSION_ZSTD, MIB)


def test_unknown_types_and_bad_limits() -> None:
    with pytest.raises(DecompressionFailed, match="type 7"):
        decompress_body(b"", COMPRESSED | 0x700, 10)
    with pytest.raises(InvalidArgument):
        decompress_body(b"", 0, -1)


@pytest.mark.parametrize(
    ("kind", "package"), [(COMPRESSION_LZ4, "lz4"), (COMPRESSION_ZSTD, "zstandard")]
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: int, package: str
) -> None:
    def absent(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(compression, "import_module", absent)
    with pytest.raises(CodecMissing, match=f"pip install {package}"):
        decompress_body(b"x", COMPRESSED | kind, 10)


def test_java_reads_what_we_compress() -> None:
    """zlib wrapping, which Java's Inflater expects by default."""
    packed = compress_body(b"a" * 5_000)
    assert packed[0] == 0x78
    assert zlib.decompress(packed) == b"a" * 5_000
