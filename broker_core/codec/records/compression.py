"""Compression of message bodies. Producers compress, consumers decompress.

The type is in the sys flag. A broker never decompresses. An untrusted body may be a bomb (4 MiB of
zstd can expand to 128 GiB), so every codec stops at a limit before it allocates more memory.

    0x000, 0x300  zlib, built in            0x100  LZ4 frame, package lz4
                                            0x200  Zstandard frame, package zstandard
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

from broker_core.codec.records.message_record import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_BITS,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from broker_core.errors import CodecMissing, DecompressionFailed, InvalidArgument

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW_MIN: Final = 8 << 20
_ZSTD_RLE_BLOCK: Final = 1
_ZSTD_CHECKSUM_FLAG: Final = 0x04


def compress_body(body: bytes, level: int = 5) -> bytes:
    """Compress with zlib, which every client reads; the sys flag must have `COMPRESSED` then."""
    return zlib.compress(body, level)


def decompress_body(body: bytes | memoryview, sys_flag: int, size_max: int) -> bytes:
    """The decompressed body; a copy of the body if the flag says that it is not compressed.

    Raises `DecompressionFailed` for damage and for more than `size_max` bytes, and `CodecMissing`
    when the package for the type is not installed.
    """
    if size_max < 0:
        raise InvalidArgument(f"size_max={size_max}: give a limit of 0 bytes or more")
    if not sys_flag & COMPRESSED:
        return bytes(body)
    kind = sys_flag & COMPRESSION_TYPE_BITS
    decompress = _DECOMPRESSORS.get(kind)
    if decompress is None:
        raise DecompressionFailed(f"unknown compression type {kind >> 8}")
    plain = decompress(body, size_max)
    if len(plain) > size_max:
        text = f"the body is larger than {size_max} bytes when decompressed"
        raise DecompressionFailed(f"{text} (decompressed_size_max)")
    return plain


def _decompress_zlib(body: bytes | memoryview, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, size_max + 1)
    except zlib.error as error:
        raise DecompressionFailed(f"zlib: {error}") from None
    if not stream.eof and len(plain) <= size_max:
        raise DecompressionFailed("zlib: the body is cut off")
    return plain


def _decompress_lz4(body: bytes | memoryview, size_max: int) -> bytes:
    frame = _package("lz4.frame", "lz4", "LZ4")
    stream = frame.LZ4FrameDecompressor()
    try:
        plain: bytes = stream.decompress(bytes(body), max_length=size_max + 1)
    except RuntimeError as error:
        raise DecompressionFailed(f"LZ4: {error}") from None
    if not stream.eof and len(plain) <= size_max:
        raise DecompressionFailed("LZ4: the body is cut off")
    return plain


def _decompress_zstd(body: bytes | memoryview, size_max: int) -> bytes:
    zstandard = _package("zstandard", "zstandard", "Zstandard")
    raw = bytes(body)
    # A frame may request a window, and so memory, far larger than its content.
    window_max = max(_ZSTD_WINDOW_MIN, 1 << size_max.bit_length())
    try:
        is_whole = raw[:4] == _ZSTD_MAGIC and _is_whole_zstd(raw, zstandard.frame_header_size(raw))
        reader = zstandard.ZstdDecompressor(max_window_size=window_max).stream_reader(raw)
        plain: bytes = reader.read(size_max + 1)
    except zstandard.ZstdError as error:
        raise DecompressionFailed(f"Zstandard: {error}") from None
    if not is_whole:
        raise DecompressionFailed("Zstandard: the body is not a complete frame")
    return plain


def _is_whole_zstd(raw: bytes, position: int) -> bool:
    """Walk the block headers, because the reader does not report a truncated frame."""
    tail = 4 if raw[4] & _ZSTD_CHECKSUM_FLAG else 0
    is_last = False
    while not is_last and position + 3 <= len(raw):
        header = int.from_bytes(raw[position : position + 3], "little")
        is_last = bool(header & 1)
        position += 3 + (1 if header >> 1 & 3 == _ZSTD_RLE_BLOCK else header >> 3)
    return is_last and position + tail <= len(raw)


def _package(module: str, package: str, codec: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        raise CodecMissing(
            f"the body is compressed with {codec}; install the package {package}"
            f" (pip install {package}, or pyspark-rmq[compression])"
        ) from None


_DECOMPRESSORS: Final[Mapping[int, Callable[[bytes | memoryview, int], bytes]]] = {
    0: _decompress_zlib,
    COMPRESSION_ZLIB: _decompress_zlib,
    COMPRESSION_LZ4: _decompress_lz4,
    COMPRESSION_ZSTD: _decompress_zstd,
}
