"""The site: `mkdocs.yml` names every page, links lead somewhere, Python blocks compile.

Without mkdocs, which `make docs` runs. A heading is a target only if GitHub and mkdocs make the
same anchor of it, because the pages are read at both places.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*sorted(path.name for path in ROOT.glob("*.md")), *PAGES]
README_LINES_MAX = 150
_NAV_PAGE = re.compile(r"^ +- (?:[^:#\n]+: )?([\w./-]+\.md)$", re.MULTILINE)
_FENCE = re.compile(r"^ *```(\w*).*?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_DESCRIBED = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
_EXPLICIT = re.compile(r'<a id="([^"]+)"></a>')


def texts() -> dict[str, str]:
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS}


def nav_pages(settings: str) -> list[str]:
    return _NAV_PAGE.findall(settings[settings.index("\nnav:\n") :])


def anchors(text: str) -> set[str]:
    found = set(_EXPLICIT.findall(text))
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        github = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        mkdocs = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())
        if github == mkdocs:
            found.add(github)
    return found


def bad_links(name: str, known: Mapping[str, str]) -> list[str]:
    """Links of a document that lead nowhere; pages of the site cannot link to files beside it."""
    bad = []
    for link in _LINK.findall(_CODE.sub("", _FENCE.sub("", known[name]))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = _resolved(PurePosixPath(name).parent, path) if path else name
        if name.startswith("docs/") and not target.startswith("docs/"):
            bad.append(link)
        elif target in known:
            if anchor and anchor not in anchors(known[target]):
                bad.append(link)
        elif anchor or not (ROOT / target).exists():
            bad.append(link)
    return bad


def _resolved(folder: PurePosixPath, path: str) -> str:
    parts: list[str] = []
    for part in (folder / path).parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def python_blocks(text: str) -> list[str]:
    return [body for language, body in _FENCE.findall(text) if language == "python"]


def test_the_navigation_names_every_page_once() -> None:
    named = nav_pages((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(f"docs/{page}" for page in named) == PAGES


def test_a_page_is_found_in_each_form_of_an_entry() -> None:
    settings = "nav:\n  - x.md\n\nnav:\n  - a.md\n  - Two: b/two.md\n  - Part:\n      - C: c.md\n"
    assert nav_pages(settings) == ["a.md", "b/two.md", "c.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_leads_somewhere(document: str) -> None:
    assert bad_links(document, texts()) == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    known = {
        "README.md": "[a](docs/a.md#the-end) [b](docs/b.md) [c](docs/a.md#the-start) [m](Makefile)",
        "docs/a.md": "## The end\n## A – b\n[x](#the-end) [y](#a-b) [z](../README.md)\n"
        '<a id="own"></a> [o](#own) `[code](gone.md)` [w](https://example.org/gone)\n'
        "```\n## Fenced\n[f](gone.md)\n```\n[g](#fenced)\n",
    }
    assert bad_links("README.md", known) == ["docs/b.md", "docs/a.md#the-start"]
    assert bad_links("docs/a.md", known) == ["#a-b", "../README.md", "#fenced"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_python_block_compiles(document: str) -> None:
    for block in python_blocks(texts()[document]):
        ast.parse(block, document)


def test_a_python_block_is_found() -> None:
    text = "```\nnot python\n```\n\n```python\nprint(\n```\n\n```python\nx = 1\n```\n"
    assert python_blocks(text) == ["print(\n", "x = 1\n"]


def test_the_readme_is_short() -> None:
    assert len(texts()["README.md"].splitlines()) <= README_LINES_MAX


def test_the_first_example_of_the_start_page_is_that_of_the_readme() -> None:
    known = texts()
    assert python_blocks(known["docs/start.md"])[0] == python_blocks(known["README.md"])[0]


def undefined(names: list[str]) -> list[str]:
    """Names of classes and functions that their module does not define at its top."""
    missing = []
    for name in names:
        module, _, own = name.rpartition(".")
        path = ROOT / module.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8") if path.exists() else "")
        if own not in {getattr(node, "name", "") for node in tree.body}:
            missing.append(name)
    return missing


def test_every_name_of_the_reference_is_defined() -> None:
    names = _DESCRIBED.findall(texts()["docs/reference.md"])
    assert len(names) > 15
    assert undefined(names) == []


def test_a_name_that_is_not_defined_is_found() -> None:
    here = ["tests.test_site.undefined", "pyspark_rmq.spark_conf"]
    gone = ["tests.test_site.gone", "tests.gone.undefined", "pyspark_rmq.SPARK_CONF"]
    assert undefined([*here, *gone]) == gone
