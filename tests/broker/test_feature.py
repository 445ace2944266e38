"""The list of features: complete, started in order, stopped in reverse order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from broker_core.broker.broker import Features
from broker_core.broker.feature import Feature
from tests.broker.running_broker import broker_config, running

Run = Callable[..., Any]


def _names(features: Features) -> dict[Feature, str]:
    return {found: name for name, found in vars(features).items() if isinstance(found, Feature)}


def test_every_feature_is_in_the_list_once(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            features = asker.broker.features
            assert list(_names(features)) == list(features.ordered)

    run_async(scenario())


def test_recovery_and_start_in_order_release_and_stop_in_reverse(
    tmp_path: Path, run_async: Run, monkeypatch: Any
) -> None:
    steps: list[tuple[str, Feature]] = []

    def recorded(step: str, real: Callable[[Feature], Any], feature: Feature) -> Any:
        steps.append((step, feature))
        return real(feature)

    for kind in (Feature, *Feature.__subclasses__()):
        for step in ("recover", "start", "release", "stop"):
            if step in vars(kind):
                real = vars(kind)[step]
                # A function, so that it is bound to the feature.
                monkeypatch.setattr(kind, step, lambda f, s=step, r=real: recorded(s, r, f))

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            features, broker = asker.broker.features, asker.broker
            await broker.stop()
        ordered = features.ordered
        of = partial(_of, steps)
        assert of("recover") == of("start") == list(ordered)
        assert of("release") == of("stop") == list(reversed(ordered))
        assert [step for step, _ in steps] == sorted(
            (step for step, _ in steps), key=["recover", "start", "release", "stop"].index
        )

    run_async(scenario())


def _of(steps: list[tuple[str, Feature]], wanted: str) -> list[Feature]:
    return [feature for step, feature in steps if step == wanted]
