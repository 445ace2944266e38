"""Tables and texts of administration commands."""

from __future__ import annotations

import json
import re

from broker_core.cli.admin.report import EpochMs, Facts, Note, Table, report_json, report_text


def test_a_table_is_aligned_and_safe() -> None:
    table = Table(("name", "maxOffset"), [("a\x1b[31m\n", 5), ("世界", 1_000), ("", None)])
    lines = report_text([table]).splitlines()
    assert lines[0] == "NAME         MAX OFFSET"
    assert "\\x1b[31m\\n" in lines[1] and lines[1].endswith("         5")
    assert lines[2] == "世界               1000"
    assert lines[3].split() == ["-", "-"]
    assert json.loads(report_json([table]))[1] == {"name": "世界", "maxOffset": 1_000}


def test_facts_notes_and_several_tables() -> None:
    assert report_text([Table(("a",), [])]) == "(none)\n"
    text = report_text([Facts({"a": 1.5, "long": True, "list": ["x", "y"]}, "t"), Note("done")])
    assert text == "t\na     1.50\nlong  yes\nlist  x, y\n\ndone\n"
    assert json.loads(report_json([Facts({"at": EpochMs(5)}), Note("x")])) == {"at": 5}
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,007", str(EpochMs(1_700_000_000_007)))
    two = report_json([Facts({"a": 1}, "one"), Table(("b",), [(2,)], "two")])
    assert json.loads(two) == {"one": {"a": 1}, "two": [{"b": 2}]}
