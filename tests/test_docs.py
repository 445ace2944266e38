"""The documents name files that exist, and the checklist is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
)
_TREES = "broker_core|pyspark_rmq|tests|examples|benchmarks|tools|docs"
_OUR_PATH = re.compile(rf"`((?:{_TREES})/[\w./-]+)`")
_CHECKLIST_ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
_CHECKLIST_ROWS = 39


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_exists(document: str) -> None:
    assert not _missing_paths((ROOT / document).read_text(encoding="utf-8"))


def test_a_path_that_is_not_there_is_found() -> None:
    text = "See `broker_core/errors.py`, `docs/gone.md` and `tests/gone/`, not `/etc/gone`."
    assert _missing_paths(text) == ["docs/gone.md", "tests/gone/"]


def _missing_paths(text: str) -> list[str]:
    return sorted({path for path in _OUR_PATH.findall(text) if not (ROOT / path).exists()})


def test_the_tree_names_every_folder() -> None:
    tree = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("```")[1]
    folders = [
        folder.relative_to(ROOT).as_posix()
        for pattern in ("*/", "*/*/")
        for package in ("broker_core", "pyspark_rmq")
        for folder in (ROOT / package).glob(pattern)
        if list(folder.glob("*.py"))
    ]
    assert len(folders) > 40
    assert not _unnamed_folders(tree, folders)


def test_a_folder_that_the_tree_lacks_is_found() -> None:
    tree = "broker_core/\n  cli/   rmq: admin/\n  store/   reads/\npyspark_rmq/\n  sink/\n"
    named = ["broker_core/cli", "broker_core/cli/admin", "broker_core/store/reads"]
    assert not _unnamed_folders(tree, [*named, "pyspark_rmq/sink"])
    lacking = ["broker_core/cli/reads", "broker_core/sink", "pyspark_rmq/cli", "broker_core/cl"]
    assert _unnamed_folders(tree, [*named, *lacking]) == lacking


def _unnamed_folders(tree: str, folders: list[str]) -> list[str]:
    """Folders, two levels below a package at most, that the tree does not name in their place."""
    named, package, parent = set(), "", ""
    for line in tree.splitlines():
        names = re.findall(r"(?<![\w/])(\w+)/", line)
        depth = (len(line) - len(line.lstrip())) // 2
        if depth == 0:
            package = names[0] if names else package
        elif depth == 1 and names:
            tops = re.findall(r"(\w+)/", re.split(r"\s{3,}", line.strip())[0])
            parent = f"{package}/{tops[0]}"
            named |= {f"{package}/{top}" for top in tops}
        named |= {f"{parent}/{name}" for name in names if depth}
    return [folder for folder in folders if folder not in named]


def test_the_mission_checklist_is_complete() -> None:
    rows = _CHECKLIST_ROW.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert [int(number) for number, _ in rows] == list(range(1, _CHECKLIST_ROWS + 1))
    unplaced = [number for number, place in rows if not re.search(r"`.+`|planned \(", place)]
    assert not unplaced


def test_every_fault_and_every_accident_is_tried_somewhere() -> None:
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([FR]\d\d) \| .*`tests/.*` \|$", page, re.MULTILINE)
    faults = [f"F{number:02d}" for number in range(1, 27)]
    accidents = [f"R{number:02d}" for number in range(1, 16)]
    assert rows == [*faults, *accidents]


def test_the_readme_shows_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
