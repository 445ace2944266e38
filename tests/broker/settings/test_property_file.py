"""Java property text: every case of its grammar, and invalid files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.broker.settings.property_file import (
    FILE_SIZE_MAX,
    parse_properties,
    property_lines,
    read_properties,
)
from broker_core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n \n\t\n", {}),
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t:\t1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("a=b=c", {"a": "b=c"}),
        ("a==b", {"a": "=b"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        ("#a=1\n!b=2\n  # c=3", {}),
        ("a=1\ra=2\r\na=3", {"a": "3"}),
        ("a=1,\\\n  2", {"a": "1,2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# part of it", {"a": "1# part of it"}),
        ("a=1\\", {"a": "1"}),
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"a=\t\u0041\q", {"a": "Aq"}),
        (r"path=C:\data", {"path": "C:data"}),
        ("a=\\u4e2d", {"a": "中"}),
    ],
)
def test_grammar(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12G4", "a=\\u"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"broker\.conf, line 3"):
        parse_properties(f"b=1\n\n{text}", "broker.conf")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_properties(text)
    except InvalidConfig:
        return
    assert all(isinstance(value, str) for value in found.values())


@given(
    st.dictionaries(
        st.from_regex(r"[a-zA-Z0-9.]{1,20}", fullmatch=True),
        st.text(st.characters(exclude_categories=("C", "Z"), include_characters="\\\n\r")),
    )
)
def test_lines_are_read_back(properties: dict[str, str]) -> None:
    expected = {key: value.strip() for key, value in properties.items()}
    assert parse_properties(property_lines(properties)) == expected


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"configFile='.*missing.conf'.*No such file"):
        read_properties(str(tmp_path / "missing.conf"))
    with pytest.raises(InvalidConfig, match="directory"):
        read_properties(str(tmp_path))
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_properties("a\0b")
    large = tmp_path / "large.conf"
    large.write_bytes(b"#" * (FILE_SIZE_MAX + 1))
    with pytest.raises(InvalidConfig, match="at most"):
        read_properties(str(large))


def test_a_comment_in_another_encoding_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes("# 名称\nbrokerName=b".encode("gbk"))
    assert read_properties(str(path)) == {"brokerName": "b"}
