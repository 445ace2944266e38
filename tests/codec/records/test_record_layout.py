"""Each format is laid out once per language: the C constants equal those of Python, and no other
file of the product declares them again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from broker_core.codec.records import column_names, index_record, record_layout
from broker_core.codec.records.record_layout import HEADERS
from tests.import_rules import no_garbage_collection

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "broker_core" / "codec" / "native"
# Path -> why this file may declare such numbers.
MAY_DECLARE = {
    "broker_core/codec/records/index_record.py": "the layout of index files",
    "broker_core/codec/records/record_layout.py": "the layout of records",
    "broker_core/protocol_codes.py": "the one home of MASTER_ID",
    "pyspark_rmq/prove/stored_bodies.py": "shares no code with the broker, in order to check it",
}


def constants(text: str) -> dict[str, int]:
    """Numbers of `#define NAME number` and of enumerators with a value."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = dict(re.findall(r"^#define (\w+) (\w+)$", text, re.M))
    for values in re.findall(r"enum \{(.*?)\}", text, re.S):
        found.update(re.findall(r"(\w+) = ([\w <]+?)\s*(?:,|$)", values.strip()))
    numbers = {}
    for name, value in found.items():
        if re.fullmatch(r"(0x[0-9A-Fa-f]+|\d+)u?", value):
            numbers[name] = int(value.rstrip("u"), 0)
        elif re.fullmatch(r"\d+ << \d+", value):
            low, high = value.split(" << ")
            numbers[name] = int(low) << int(high)
    return numbers


def test_the_layout_of_records_is_the_same_in_both_languages() -> None:
    header = constants((NATIVE / "include" / "layout.h").read_text())
    assert {"MAGIC_V1", "MAGIC_BLANK", "QUEUE_OFFSET_AT", "UNIT_SIZE", "WIRE_PLACE_BITS"} <= set(
        header
    )
    assert len(header) > 40
    assert header == {name: getattr(record_layout, name, None) for name in header}


@pytest.mark.parametrize("hosts", range(4))
def test_places_of_fields_are_those_of_the_packed_header(hosts: int) -> None:
    fields = (1, 2, 3, 4, 5, 6, 7, 8, 9, b"b", 10, b"s", 11, 12, 13)
    packed = HEADERS[hosts].pack(*fields)
    extra = record_layout.hosts_extra(hosts << 4)
    born_extra = record_layout.IPV6_EXTRA * (hosts & 1)

    def number(at: int, size: int) -> int:
        return int.from_bytes(packed[at : at + size], "big")

    layout = record_layout
    assert number(layout.SIZE_AT, 4) == 1
    assert number(layout.MAGIC_AT, 4) == 2
    assert number(layout.BODY_CRC_AT, 4) == 3
    assert number(layout.QUEUE_ID_AT, 4) == 4
    assert number(layout.FLAG_AT, 4) == 5
    assert number(layout.QUEUE_OFFSET_AT, 8) == 6
    assert number(layout.PHYSICAL_OFFSET_AT, 8) == 7
    assert number(layout.SYS_FLAG_AT, 4) == 8
    assert number(layout.BORN_TIMESTAMP_AT, 8) == 9
    assert packed[layout.BORN_HOST_AT : layout.BORN_HOST_AT + 1] == b"b"
    assert number(layout.STORE_TIMESTAMP_AT + born_extra, 8) == 10
    assert number(layout.PREPARED_OFFSET_AT + extra, 8) == 12
    assert number(layout.BODY_LENGTH_AT + extra, 4) == 13
    assert len(packed) == layout.BODY_LENGTH_AT + extra + 4
    assert len(HEADERS[3].pack(*fields)) == layout.HEADER_SIZE_MAX
    # TOPICLEN of V1 and PROPLEN.
    assert HEADERS[0].size + 1 + 2 == layout.RECORD_SIZE_MIN


def test_other_formats_are_the_same_in_both_languages() -> None:
    index = constants((NATIVE / "index.c").read_text())
    for name in ("HEADER_SIZE", "SLOT_SIZE", "ENTRY_SIZE"):
        assert index.pop(f"INDEX_{name}") == getattr(index_record, name)
    header = index_record.HEADER.pack(1, 2, 3, 4, 5, 6)
    for value, (name, size) in enumerate(
        (
            ("BEGIN_TIMESTAMP", 8),
            ("END_TIMESTAMP", 8),
            ("BEGIN_POSITION", 8),
            ("END_POSITION", 8),
            ("SLOTS_USED", 4),
            ("NEXT_ENTRY", 4),
        ),
        start=1,
    ):
        at = index.pop(f"INDEX_{name}_AT")
        assert int.from_bytes(header[at : at + size], "big") == value, name
    entry = index_record.ENTRY.pack(1, 2, 3, 4)
    for value, (name, size) in enumerate(
        (("POSITION", 8), ("SECONDS", 4), ("PREVIOUS", 4)), start=2
    ):
        at = index.pop(f"INDEX_ENTRY_{name}_AT")
        assert int.from_bytes(entry[at : at + size], "big") == value, name
    assert not index, "constants that were not compared"


def test_places_of_a_message_in_a_batch_are_those_of_the_packed_item() -> None:
    layout = record_layout
    packed = layout.BATCH_ITEM.pack(1, 2, 3, 4, 5)

    def number(at: int) -> int:
        return int.from_bytes(packed[at : at + 4], "big")

    assert number(layout.BATCH_ITEM_MAGIC_AT) == 2
    assert number(layout.BATCH_ITEM_FLAG_AT) == 4
    assert number(layout.BATCH_ITEM_BODY_LENGTH_AT) == 5
    assert len(packed) == layout.BATCH_ITEM_BODY_AT


def test_column_bits_are_the_same_in_both_languages() -> None:
    text = (NATIVE / "decode.c").read_text()
    wanted = constants(text)
    renamed = {"WANTED_UNIQUE_KEY": "UNIQ_KEY"}
    for name in [each for each in wanted if each.startswith("WANTED_")]:
        bit = getattr(column_names, renamed.get(name, name.removeprefix("WANTED_")))
        assert wanted[name] == bit, name
    numbers = re.findall(r'\{"(\w+)", (\d+), [48]\}', text)
    assert len(numbers) == 8
    for column, bit in numbers:
        assert getattr(column_names, column.upper()) == int(bit), column


def magics() -> set[int]:
    """The numbers that only a layout may contain, unsigned and as Java prints them."""
    unsigned = {record_layout.MAGIC_V1, record_layout.MAGIC_V2, record_layout.MAGIC_BLANK}
    return unsigned | {(1 << 32) - magic for magic in unsigned}


def redeclared(tree: ast.AST) -> Iterator[str]:
    """Magics, struct formats of records and units, and constants with names of the layout."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in magics():
            yield f"{node.lineno}: {node.value:#x}"
        if isinstance(node, ast.Constant) and node.value in (">qiq", ">iqii", ">qqqqii", ">iqq"):
            yield f"{node.lineno}: {node.value}"
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Constant) or type(value.value) is not int:
            continue
        for target in targets:
            name = target.id.lstrip("_") if isinstance(target, ast.Name) else ""
            if name in LAYOUT_NAMES:
                yield f"{target.lineno}: {name}"


def names_of(module: ModuleType) -> set[str]:
    return {name for name, value in vars(module).items() if name.isupper() and type(value) is int}


# SIZE_MAX is a name that other limits have, too.
LAYOUT_NAMES = (names_of(record_layout) | {"MASTER_ID"}) - {"SIZE_MAX"}


def test_no_other_file_declares_the_layout_again() -> None:
    found = {}
    for tree in ("broker_core", "pyspark_rmq"):
        for path in sorted((ROOT / tree).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name in MAY_DECLARE:
                continue
            with no_garbage_collection():
                lines = list(redeclared(ast.parse(path.read_text())))
            if lines:
                found[name] = lines
    assert not found


@pytest.mark.parametrize("path", MAY_DECLARE)
def test_no_exception_is_out_of_date(path: str) -> None:
    assert list(redeclared(ast.parse((ROOT / path).read_text())))


@pytest.mark.parametrize(
    "text",
    ["A = 0xDAA320A7", "x = -875286124", "U = Struct('>qiq')", "_SYS_FLAG_AT: Final = 36"],
)
def test_a_planted_declaration_is_found(text: str) -> None:
    assert list(redeclared(ast.parse(text)))
