"""`requirements.lock`: everything that is installed is pinned to one version and to known files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENTRY = re.compile(r"([a-z0-9-]+)==([0-9][\w.+!-]*) ((?:--hash=sha256:[0-9a-f]{64} ?)+)")


def locked() -> dict[str, str]:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", "")
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        entry = ENTRY.fullmatch(re.sub(r"\s+", " ", line).strip())
        assert entry is not None, line[:80]
        assert entry[1] not in found, entry[1]
        found[entry[1]] = entry[2]
    return found


def wanted() -> set[str]:
    """Names in `setup.py`, of the package itself and of the extras that tests install."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    given = {
        keyword.arg: keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup"
        for keyword in node.keywords
    }
    extras: dict[str, list[str]] = ast.literal_eval(given["extras_require"])
    needed: list[str] = ast.literal_eval(given["install_requires"])
    texts = [*needed, *(text for extra in extras.values() for text in extra)]
    names = {re.match(r"[\w.-]+", text)[0] for text in texts}  # type: ignore[index]
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def test_every_dependency_is_pinned_with_hashes() -> None:
    assert wanted() - locked().keys() == set(), "run python tools/lock_requirements.py"
    assert len(locked()) > 30
