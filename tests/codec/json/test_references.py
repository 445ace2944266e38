"""fastjson references."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from broker_core.codec.json import references as json_references
from broker_core.codec.json.dialect import parse_json
from broker_core.codec.json.references import HOPS_MAX
from broker_core.errors import MalformedJson


def parsed(text: str, **limits: Any) -> Any:
    return parse_json(text.encode(), **limits)


def followed(text: str) -> Any:
    return parsed(text, references=True)


def chain_of(length: int) -> str:
    """Each name refers to the next one, and the last to an array."""
    links = ",".join(f'"n{at}":{{"$ref":"$.n{at + 1}"}}' for at in range(length))
    return f'{{{links},"n{length}":[1]}}'


def test_references_lead_through_a_few_others_only() -> None:
    assert followed(chain_of(HOPS_MAX))["n0"] == [1]
    with pytest.raises(MalformedJson, match=f"more than {HOPS_MAX} others"):
        followed(chain_of(HOPS_MAX + 1))


def reversed_chain(length: int) -> str:
    """Each name refers to the one before it: the first hop of each leads to the array."""
    links = ",".join(f'"n{at}":{{"$ref":"$.n{at - 1}"}}' for at in range(1, length))
    return f'{{"n0":[1],{links}}}'


def stars(count: int) -> str:
    """Runs of as many hops as are allowed, all to one array."""
    runs = ",".join(
        f'"r{run}h{at}":{{"$ref":"$.{f"r{run}h{at + 1}" if at < HOPS_MAX - 1 else "end"}"}}'
        for run in range(count // HOPS_MAX)
        for at in range(HOPS_MAX)
    )
    return f'{{{runs},"end":[1]}}'


@pytest.mark.parametrize("text_of", [reversed_chain, stars, chain_of])
def test_each_reference_is_looked_up_once(text_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of look-ups, for a text of a megabyte."""
    looked_up: list[str] = []
    original = json_references._Resolver._at

    def counted(self: Any, path: str) -> Any:
        looked_up.append(path)
        # Long before a quadratic way would come to its end.
        assert len(looked_up) <= 2 * 40_000
        return original(self, path)

    monkeypatch.setattr(json_references._Resolver, "_at", counted)
    with contextlib.suppress(MalformedJson):
        followed(text_of(40_000))
    assert len(looked_up) <= 40_000
