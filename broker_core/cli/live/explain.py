"""`rmq explain ANCHOR`: the section of docs/errors.md that an error names, without a network."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

from broker_core.cli.exit_codes import DONE, MISUSED, CommandFailed
from broker_core.errors import ERROR_PAGE

EXAMPLES: Final = """\
  rmq explain                                  all errors
  rmq explain broker-given-as-name-server      one, as an error names it"""

_ROOT: Final = Path(__file__).resolve().parents[3]
# In an installed package, and in the repository.
_PLACES: Final = (_ROOT / "pyspark_rmq" / ERROR_PAGE, _ROOT / ERROR_PAGE)
_SECTION: Final = re.compile(
    r'^<a id="([a-z0-9-]+)"></a>\n(### .*?)(?=^<a id=|^## |\Z)', re.MULTILINE | re.DOTALL
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "anchor",
        nargs="?",
        metavar="NAME",
        help=f"what follows {ERROR_PAGE}# in an error (default: list them)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the section, or the list of all."""
    sections = error_sections(error_page())
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


def error_page() -> str:
    """The text of the page."""
    for place in _PLACES:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise CommandFailed(f"{ERROR_PAGE} is not in this installation")


def error_sections(page: str) -> dict[str, str]:
    """Anchor -> title and text."""
    return {anchor: f"{text.strip()}\n" for anchor, text in _SECTION.findall(page)}
