"""Settings of push consumers are checked."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.client.push.types import (
    PushSettings,
)
from broker_core.errors import InvalidConfig


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "SOME"},
        {"from_where": "HERE"},
        {"batch_size": 0},
        {"concurrency": True},
        {"suspend_ms": -1},
        {"offsets_directory": "somewhere"},
    ],
)
def test_settings_are_checked(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(changes))):
        PushSettings(**changes)
