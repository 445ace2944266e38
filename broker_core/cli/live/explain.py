"""`rmq explain NAME`: the section of docs/errors.md that an error names, or a page of the docs.

Needs no network: the pages are in the installed package.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

from broker_core.cli.exit_codes import DONE, MISUSED, CommandFailed
from broker_core.errors import ERROR_PAGE

EXAMPLES: Final = """\
  rmq explain                               all errors
  rmq explain broker-given-as-name-server   one, as an error names it
  rmq explain source.md | less              a page of the manual"""

_ROOT: Final = Path(__file__).resolve().parents[3]
# In an installed package, and in the repository.
_PLACES: Final = tuple((place / ERROR_PAGE).parent for place in (_ROOT / "pyspark_rmq", _ROOT))
_SECTION: Final = re.compile(
    r'^<a id="([a-z0-9-]+)"></a>\n(### .*?)(?=^<a id=|^## |\Z)', re.MULTILINE | re.DOTALL
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "anchor",
        nargs="?",
        metavar="NAME",
        help=f"what follows {ERROR_PAGE}# in an error (default: list them), or a page such as "
        "source.md",
    )
    parser.add_argument("--pages", action="store_true", help="list the pages")


def run(options: argparse.Namespace) -> int:
    """Print the section, or the list of all."""
    pages = page_folder()
    if options.pages:
        for page in sorted(pages.glob("*.md")):
            title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
            sys.stdout.write(f"{page.name:24}  {title}\n")
        return DONE
    name = (options.anchor or "").removeprefix("docs/")
    if name.endswith(".md"):
        if "/" in name or not (pages / name).is_file():
            raise CommandFailed(f"no page is called {name!r:.80}; rmq explain --pages", MISUSED)
        sys.stdout.write((pages / name).read_text(encoding="utf-8"))
        return DONE
    sections = error_sections((pages / Path(ERROR_PAGE).name).read_text(encoding="utf-8"))
    if options.anchor is None:
        width = max(map(len, sections))
        for anchor, text in sections.items():
            sys.stdout.write(f"{anchor:{width}}  {text.splitlines()[0].lstrip('# ')}\n")
        return DONE
    anchor = options.anchor.rpartition("#")[2]
    if anchor not in sections:
        raise CommandFailed(f"no error is called {anchor!r:.80}; rmq explain lists them", MISUSED)
    sys.stdout.write(sections[anchor].lstrip("# "))
    return DONE


def names() -> list[str]:
    """The names of errors; none without their page."""
    try:
        page = page_folder() / Path(ERROR_PAGE).name
        return [*error_sections(page.read_text(encoding="utf-8"))]
    except (CommandFailed, OSError):
        return []


def page_folder() -> Path:
    """Where the pages are."""
    for place in _PLACES:
        if place.is_dir():
            return place
    raise CommandFailed("the pages of docs/ are not in this installation")


def error_sections(page: str) -> dict[str, str]:
    """Anchor -> title and text."""
    return {anchor: f"{text.strip()}\n" for anchor, text in _SECTION.findall(page)}
