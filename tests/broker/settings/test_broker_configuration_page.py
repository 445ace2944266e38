"""The page names every property with its default, and those that are without effect."""

from __future__ import annotations

import re
from pathlib import Path

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.settings.broker_properties import (
    BROKER_PROPERTIES,
    FIXED_PROPERTIES,
    IGNORED_PROPERTIES,
    STORE_PATHS,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "broker-configuration.md"


def rows(columns: int) -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    split = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [cells for cells in split if len(cells) == columns]


def test_every_property_is_on_the_page() -> None:
    found = {cells[0].strip("`"): (cells[1].strip("`"), cells[2]) for cells in rows(4)}
    defaults = BrokerConfig(store_root="./x").as_properties()
    expected = {key: (name, defaults[key] or "–") for key, name in BROKER_PROPERTIES.items()}
    expected["storePathRootDir"] = ("store_root", "~/store")
    assert found == expected
    assert all(cells[3] for cells in rows(4))


def test_every_fixed_property_is_on_the_page() -> None:
    found = {cells[0].strip("`"): (cells[1], cells[2]) for cells in rows(3)}
    expected = {key: (value or "–", why) for key, (value, why) in FIXED_PROPERTIES.items()}
    for key, name in STORE_PATHS.items():
        expected[key] = (f"`storePathRootDir`/{name}", "the files of a store are below its root")
    assert found == expected


def test_every_ignored_property_is_on_the_page() -> None:
    found = {key: why for keys, why in rows(2) for key in re.findall(r"`(\w+)`", keys)}
    assert found == IGNORED_PROPERTIES
