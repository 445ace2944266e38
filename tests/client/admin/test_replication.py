"""Why slaves do not have all that their master has, read off the members' own reports."""

from __future__ import annotations

from typing import Any

from broker_core.client.admin.replication import Member, out_of_sync

SLAVE = {"role": "SLAVE", "tables": "t1", "problem": ""}


def master(*lags: int, tables: str = "t1") -> Member:
    slaves = [
        {"address": f"127.0.0.1:{number}", "in_sync": True, "lag_bytes": lag}
        for number, lag in enumerate(lags)
    ]
    return Member(0, "a:1", {"role": "SYNC_MASTER", "tables": tables, "slaves": slaves})


def slave(**changed: Any) -> Member:
    return Member(1, "a:2", {**SLAVE, **changed})


def test_a_slave_that_has_everything_is_in_sync() -> None:
    assert out_of_sync([master(0), slave()], 1) == ""
    assert out_of_sync([master()], 0) == ""


def test_the_reason_names_the_member() -> None:
    assert out_of_sync([slave()], 1) == "one master is expected, there is none"
    assert out_of_sync([master(), master()], 1) == "one master is expected, there is a:1, a:1"
    assert out_of_sync([Member(0, "a:1", {}, "no answer")], 1) == (
        "one master is expected, there is none; a:1: no answer"
    )
    assert out_of_sync([master(), slave(problem="refused: another id")], 1) == (
        "0 of 1 slaves have all of a:1; a:2 refused: another id"
    )
    assert out_of_sync([master(70), slave()], 1) == (
        "0 of 1 slaves have all of a:1; 127.0.0.1:0 lacks 70 bytes; a:2 reports no problem"
    )
    assert out_of_sync([master(0)], 1) == "0 of 1 slaves are registered"
    assert out_of_sync([master(0), slave(tables="t0")], 1) == "topics and groups differ on a:2"
