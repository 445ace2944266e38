"""A scenario's digest changes with what it does and with its helpers, and with nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.interop import scenario_digests
from tests.interop.scenario_digests import cell_mark, parsed_module, scenario_digest, used_places

SEND = """
LIMIT = 3
OTHER = 4

def helper(ground):
    return ground.topic(LIMIT)

@scenario("title", lacking=OTHER)
def sends(ground):
    assert helper(ground)

def bystander(ground):
    return OTHER
"""
PULL = """
from tests.interop.client_ground import Ground
from tests.interop.client_scenarios_send import helper as shared

def pulls(ground: Ground):
    shared(ground)
"""


def sends() -> None:
    """Stands for the function of that name in `SEND`."""


sends.__module__ = "tests.interop.client_scenarios_send"


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    texts = {"client_scenarios_send": SEND, "client_scenarios_pull": PULL}
    monkeypatch.setattr(scenario_digests, "_module", lambda name: parsed_module(texts[name]))
    return texts


def test_what_a_scenario_uses(sources: Mapping[str, str]) -> None:
    send = "client_scenarios_send"
    assert used_places(send, "sends") == [(send, "sends"), (send, "LIMIT"), (send, "helper")]
    assert used_places("client_scenarios_pull", "pulls") == [
        ("client_scenarios_pull", "pulls"),
        (send, "LIMIT"),
        (send, "helper"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "is_stale"),
    [
        ("assert helper", "assert not helper", True),
        ("LIMIT = 3", "LIMIT = 30", True),
        ("ground.topic(", "ground.topics(", True),
        ("OTHER = 4", "OTHER = 5", False),
        ("return OTHER", "return None", False),
        ('"title"', '"another title"', False),
    ],
)
def test_changes(sources: dict[str, str], old: str, new: str, is_stale: bool) -> None:
    before = scenario_digest(sends, "JSON")
    sources["client_scenarios_send"] = SEND.replace(old, new)
    assert (scenario_digest(sends, "JSON") != before) is is_stale


def test_settings_count(sources: Mapping[str, str]) -> None:
    assert scenario_digest(sends, "JSON") != scenario_digest(sends, "ROCKETMQ")


def test_a_mark_belongs_to_one_result_of_one_cell() -> None:
    mark = cell_mark("d", "sends", "ours", "4.9.7", "yes")
    assert mark == cell_mark("d", "sends", "ours", "4.9.7", "yes")
    others = {
        cell_mark("e", "sends", "ours", "4.9.7", "yes"),
        cell_mark("d", "sends", "ours", "5.5.0", "yes"),
        cell_mark("d", "sends", "ours", "4.9.7", "no"),
    }
    assert len(others | {mark}) == 4
