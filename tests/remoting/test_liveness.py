"""When a peer is given up: pure decisions over times and counts."""

from __future__ import annotations

from broker_core.config import RemotingLimits
from broker_core.remoting.liveness import Liveness


def verdict(
    liveness: Liveness,
    now: float,
    written: int = 0,
    unsent: int = 0,
    is_reading: bool = True,
    is_busy: bool = False,
) -> str:
    return liveness.reason_to_close(
        now, written_total=written, unsent_size=unsent, is_reading=is_reading, is_busy=is_busy
    )


def fresh() -> Liveness:
    return Liveness(RemotingLimits(), 0.0)


def test_silence() -> None:
    liveness = fresh()
    assert verdict(liveness, 120.0) == ""
    assert verdict(liveness, 120.1) == "idle"
    liveness.last_activity = 100.0
    assert verdict(liveness, 220.0) == ""
    assert verdict(liveness, 220.1) == "idle"


def test_silence_while_an_answer_is_owed() -> None:
    liveness = fresh()
    assert verdict(liveness, 500.0, is_busy=True) == ""
    assert verdict(liveness, 500.0) == "idle"


def test_bytes_that_leave_are_a_sign_of_life() -> None:
    liveness = fresh()
    assert verdict(liveness, 100.0, written=10) == ""
    assert verdict(liveness, 219.0, written=10) == ""
    assert verdict(liveness, 221.0, written=10) == "idle"


def test_a_frame_that_does_not_end() -> None:
    liveness = fresh()
    liveness.partial_since = liveness.last_activity = 10.0
    assert verdict(liveness, 40.0) == ""
    liveness.last_activity = 40.0
    assert verdict(liveness, 40.1) == "a frame did not arrive completely in time"


def test_time_in_which_we_do_not_read_does_not_count() -> None:
    liveness = fresh()
    liveness.partial_since = 10.0
    assert verdict(liveness, 300.0, is_reading=False) == ""
    assert verdict(liveness, 330.0) == ""
    assert verdict(liveness, 330.1) != ""


def test_a_peer_that_does_not_read() -> None:
    liveness = fresh()
    assert verdict(liveness, 1.0, written=100, unsent=60, is_reading=False) == ""
    assert verdict(liveness, 61.0, written=200, unsent=160, is_reading=False) == ""
    assert verdict(liveness, 61.1, written=200, unsent=160, is_reading=False) != ""


def test_a_peer_that_reads_slowly() -> None:
    liveness = fresh()
    for second in range(0, 1_000, 50):
        assert (
            verdict(liveness, second, written=10_000, unsent=9_000 - second, is_reading=False) == ""
        )
