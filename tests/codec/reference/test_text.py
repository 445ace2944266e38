"""Java's hash of texts."""

from __future__ import annotations

import pytest

from broker_core.codec.reference.text import hash_state, index_key_hash, java_hash, tags_hash


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("polygenelubricants", -(1 << 31)),
        ("Ωmega", 868_686_747),
        ("\U0001f600", 1_772_899),
    ],
)
def test_values_of_java(text: str, value: int) -> None:
    assert java_hash(text.encode()) == value
    assert tags_hash(text.encode()) == value


def test_long_texts_are_hashed_in_parts() -> None:
    expected = 0
    text = "x" * 1_500 + "y"
    for character in text:
        expected = (31 * expected + ord(character)) & 0xFFFF_FFFF
    found = java_hash(text.encode())
    assert found & 0xFFFF_FFFF == expected


def test_an_index_hash_continues_from_its_prefix_and_is_never_negative() -> None:
    assert index_key_hash(hash_state(b"T#"), b"k") == abs(java_hash(b"T#k"))
    assert index_key_hash(hash_state(b"poly"), b"genelubricants") == 0


def test_bytes_only() -> None:
    with pytest.raises(TypeError):
        java_hash("text")  # type: ignore[arg-type]
