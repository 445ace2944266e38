"""`docs/configuration.md` names every setting with its property and its default."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from broker_core.config import PROPERTY_NAMES, StoreConfig

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"


def test_every_setting_is_on_the_page() -> None:
    rows = {
        cells[1].strip(" `"): (cells[2].strip(" `"), cells[3].strip())
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `") and len(cells := line.split("|")) == 6
    }
    properties = {field: key for key, field in PROPERTY_NAMES.items()}
    expected = {}
    for field in dataclasses.fields(StoreConfig):
        default = getattr(field.default, "value", field.default)
        text = str(default).lower() if isinstance(default, bool) else str(default)
        expected[field.name] = (properties.get(field.name, "–"), text)
    assert rows == expected
