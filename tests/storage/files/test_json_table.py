"""Metadata tables: Apache's shapes in, checksummed JSON out, the backup when the file is bad."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import CorruptStore
from broker_core.storage.files.json_table import (
    DEPTH_MAX,
    JsonTable,
    encode_table,
    parse_table,
    quote_integer_keys,
)
from tests.fakes.simulated_disk import SimulatedCrash
from tests.store.small_store import new_disk

PATH = "config/consumerOffset.json"
JAVA = b"""{
\t"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1700000000000},
\t"offsetTable":{"TopicTest@g1":{0:12,1:7,
10 : -3},"a{1:2}":{-1:0}}
}"""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)  # fmt: skip
KEYS = st.text(max_size=5).filter(lambda key: key != "checksum")


def test_apache_writes_bare_integer_keys() -> None:
    table = parse_table(JAVA)
    assert table["offsetTable"] == {
        "TopicTest@g1": {"0": 12, "1": 7, "10": -3},
        "a{1:2}": {"-1": 0},
    }


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("{1:2}", '{"1":2}'),
        ("{1 : 2, 3:4}", '{"1" : 2, "3":4}'),
        ('{"a":"{1:2}"}', '{"a":"{1:2}"}'),
        ('{"a\\"1:2":3}', '{"a\\"1:2":3}'),
        ('{"\\\\":{1:2}}', '{"\\\\":{"1":2}}'),
        ("[1,2]", "[1,2]"),
        ('{"a":12}', '{"a":12}'),
    ],
)
def test_only_keys_outside_strings_are_quoted(text: str, quoted: str) -> None:
    assert quote_integer_keys(text) == quoted


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_what_is_saved_comes_back(table: dict[str, Any]) -> None:
    assert parse_table(encode_table(table)) == table


@given(st.dictionaries(KEYS, st.dictionaries(st.integers(-20, 200), st.integers()), max_size=4))
def test_integer_keys_come_back_as_text(table: dict[str, dict[int, int]]) -> None:
    expected = {k: {str(n): v for n, v in inner.items()} for k, inner in table.items()}
    assert parse_table(encode_table(table)) == expected


@given(st.data())
def test_a_changed_byte_is_noticed_or_changes_nothing(data: st.DataObject) -> None:
    good = encode_table({"offsetTable": {"T@g": {"0": 12, "1": 7}}, "x": [1, 2.5, None, "é"]})
    at = data.draw(st.integers(0, len(good) - 1))
    value = data.draw(st.integers(0, 255))
    bad = good[:at] + bytes([value]) + good[at + 1 :]
    try:
        found = parse_table(bad)
    except ValueError:
        return
    # Some changes hit the name of the checksum field itself; a hand-edited table has none.
    found = {name: content for name, content in found.items() if not content or name != "checksum"}
    if b'"checksum"' in bad:
        assert found == parse_table(good)


@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"null", b"[]", b"5", b"{", b'{"a":1', b'{"a":NaN}', b'{"a":Infinity}',
        b'{"a":-Infinity}', b'{"a":1e999}', b'{"a":-1e999}', b"\xff\xfe", b'{"a":1}x',
        b'{"a":' * 200 + b"1" + b"}" * 200, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":1,"checksum":"crc32:00000000"}', b'{"a":1,"checksum":5}', b"{'a':1}",
        b'{"a":' + b"9" * 5_000 + b"}", b'{"a":1,}',
    ],
)  # fmt: skip
def test_bad_content_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_table(data)


def test_depth_limit() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a":' * depth + b"1" + b"}" * depth

    parse_table(nested(DEPTH_MAX))
    with pytest.raises(ValueError, match="deep"):
        parse_table(nested(DEPTH_MAX + 1))


def test_nan_is_not_written() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            encode_table({"a": value})


class TestFile:
    def test_never_stored(self) -> None:
        assert JsonTable(new_disk(), PATH).load() is None

    def test_save_keeps_the_content_before_as_a_backup(self) -> None:
        disk = new_disk()
        table = JsonTable(disk, PATH)
        table.save({"n": 1})
        table.save({"n": 2})
        assert table.load() == {"n": 2}
        assert parse_table(disk.content(f"{PATH}.bak")) == {"n": 1}
        assert json.loads(disk.content(PATH))["checksum"].startswith("crc32:")

    @pytest.mark.parametrize("content", [b"", b"{", b"\0" * 50, b'{"n":3,"checksum":"x"}'])
    def test_a_bad_file_falls_back_to_its_backup(self, content: bytes) -> None:
        disk = new_disk()
        table = JsonTable(disk, PATH)
        table.save({"n": 1})
        table.save({"n": 2})
        disk.overwrite(PATH, content)
        assert table.is_damaged()
        assert table.load() == {"n": 1}
        table.save({"n": 3})
        assert table.load() == {"n": 3}
        assert parse_table(disk.content(f"{PATH}.bak")) == {"n": 1}, "the good backup stays"

    def test_a_missing_file_falls_back_too(self) -> None:
        disk = new_disk()
        table = JsonTable(disk, PATH)
        table.save({"n": 1})
        table.save({"n": 2})
        disk.delete(PATH)
        assert table.load() == {"n": 1}

    def test_two_bad_files_are_reported_and_not_touched(self) -> None:
        disk = new_disk()
        disk.put(PATH, b"{")
        disk.put(f"{PATH}.bak", b"}")
        tree = disk.tree()
        with pytest.raises(CorruptStore, match=r"consumerOffset\.json\.bak"):
            JsonTable(disk, PATH).load()
        assert disk.tree() == tree

    def test_a_hand_edited_table_needs_no_checksum(self) -> None:
        disk = new_disk()
        disk.put(PATH, JAVA)
        assert JsonTable(disk, PATH).load() == parse_table(JAVA)

    def test_what_cannot_be_encoded_leaves_the_file_alone(self) -> None:
        disk = new_disk()
        table = JsonTable(disk, PATH)
        table.save({"n": 1})
        tree = disk.tree()
        for bad in ({"n": float("nan")}, {"n": object()}, {"n": b"x"}):
            with pytest.raises((ValueError, TypeError)):
                table.save(bad)
            assert disk.tree() == tree

    def test_every_crash_leaves_an_old_or_the_new_table(self) -> None:
        disk = new_disk()
        table = JsonTable(disk, PATH)
        table.save({"n": 1})
        table.save({"n": 2})
        seen = set()
        for number in range(1, 20):
            attempt = disk.reboot()
            attempt.crash_at(number)
            with contextlib.suppress(SimulatedCrash):
                JsonTable(attempt, PATH).save({"n": 3})
            for state in attempt.crash_states():
                found = JsonTable(attempt.reboot(state), PATH).load()
                assert found is not None
                seen.add(found["n"])
        assert seen == {2, 3}
