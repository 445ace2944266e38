"""The tables of `broker.conf` keys."""

from __future__ import annotations

from broker_core.broker.settings.broker_properties import (
    BROKER_PROPERTIES,
    FIXED_PROPERTIES,
    IGNORED_PROPERTIES,
    STORE_PATHS,
)
from broker_core.config import PROPERTY_NAMES


def test_a_key_is_in_one_table_only() -> None:
    tables = [BROKER_PROPERTIES, FIXED_PROPERTIES, IGNORED_PROPERTIES, STORE_PATHS, PROPERTY_NAMES]
    keys = [key for table in tables for key in table]
    assert {key for key in keys if keys.count(key) > 1} == {"listenPort"}
