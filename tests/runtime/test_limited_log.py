"""How many lines are logged, and that the others are counted."""

from __future__ import annotations

import logging

import pytest

from broker_core.runtime.limited_log import LimitedLog


def test_lines_of_one_interval_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [100.0]
    limited = LimitedLog(logging.getLogger("t"), lambda: now[0], count_max=2, interval_s=10.0)
    for number in range(5):
        limited.info("line %d", number)
    assert caplog.messages == ["line 0", "line 1"]
    now[0] = 109.9
    limited.info("line %d", 5)
    assert len(caplog.messages) == 2
    now[0] = 110.0
    limited.log(logging.ERROR, "100%% %s", "late")
    limited.info("next")
    assert caplog.messages[2:] == ["100% late (4 more since the last report)", "next"]
    assert caplog.records[2].levelno == logging.ERROR
