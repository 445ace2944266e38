"""docs/demo.svg shows what `make demo` prints: real lines, as its source would write them today."""

from __future__ import annotations

import ast
import re
import sys
from xml.etree import ElementTree

from tools.record_demo import COMMAND, DEMO, PICTURE, Shown, drawn, recorded

_TEXT = "{http://www.w3.org/2000/svg}text"


def texts(picture: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(picture).iter(_TEXT)]


def printed_forms() -> list[str]:
    """A pattern for each line that the demo can print."""
    found = []
    for node in ast.walk(ast.parse(DEMO.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            (text,) = node.args
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            found.append(
                "".join(
                    re.escape(part.value) if isinstance(part, ast.Constant) else ".+"
                    for part in parts
                )
            )
    return found


def test_the_picture_shows_the_demo_as_it_is_today() -> None:
    command, *lines = texts(PICTURE.read_text(encoding="utf-8"))
    forms = printed_forms()
    assert command == COMMAND
    assert not [line for line in lines if not any(re.fullmatch(form, line) for form in forms)]


def test_the_picture_has_both_kills_and_the_proof() -> None:
    shown = "\n".join(texts(PICTURE.read_text(encoding="utf-8")))
    assert re.search(r"^driver killed \(SIGKILL\) after [\d,]+ invoices", shown, re.MULTILINE)
    assert re.search(r"^broker killed \(SIGKILL\) after [\d,]+ invoices", shown, re.MULTILINE)
    proof = re.search(r"^in: ([\d,]+) orders +out: ([\d,]+) invoices +(.*)$", shown, re.MULTILINE)
    assert proof is not None
    assert proof[1] == proof[2]
    assert re.match(r"lost 0 +duplicated 0 +foreign 0 ", proof[3])


def test_a_line_is_drawn_as_it_was_printed() -> None:
    line = "a  <b> & \"c\" 'd'"
    assert texts(drawn([Shown(line, 2.0)])) == [COMMAND, line]


def test_a_recording_has_the_lines_in_their_order() -> None:
    shown = recorded([sys.executable, "-c", "print('one'); print('two')"])
    assert [line.text for line in shown] == ["one", "two"]
    assert shown[0].at_s <= shown[1].at_s
