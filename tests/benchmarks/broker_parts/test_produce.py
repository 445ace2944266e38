"""Figures of Java producers: which fields are shown, and from how many sends."""

from __future__ import annotations

from benchmarks.broker_parts.produce import UNITS, Load, figures_of
from tests.interop.server_processes import MEASURING_FLAGS


def rounds(*sends: float) -> list[dict[str, float]]:
    return [{**dict.fromkeys(UNITS, 1.0), "sends": count, "rate": count} for count in sends]


def test_a_tail_needs_a_thousand_sends_in_every_round() -> None:
    found = figures_of({"ours": rounds(1_000, 2_000, 3_000), "apache": rounds(1_000, 1_000, 1_001)})
    assert found.keys() == UNITS.keys()
    assert found["rate"]["ours"].median == 2_000
    found = figures_of({"ours": rounds(1_000, 2_000), "apache": rounds(999, 2_000)})
    assert found.keys() == UNITS.keys() - {"p99_us"}


def test_a_load_is_described() -> None:
    assert Load(64, 100).text == "64 threads, 100 B"
    assert Load(4, 100, 50).text == "4 threads, 100 B, batches of 50"


def test_apaches_broker_has_the_flags_of_its_start_script() -> None:
    script = {
        "-server", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
        "-XX:InitiatingHeapOccupancyPercent=30", "-XX:SoftRefLRUPolicyMSPerMB=0",
        "-XX:-OmitStackTraceInFastThrow", "-XX:+AlwaysPreTouch", "-XX:-UseLargePages",
        "-XX:-UseBiasedLocking",
    }  # fmt: skip
    assert script <= set(MEASURING_FLAGS)
