"""The comparison of output and input."""

from __future__ import annotations

from pyspark_rmq.prove.comparison import Comparison, compare, compare_bodies, judge_intake
from pyspark_rmq.prove.harness import PULL, Proof
from pyspark_rmq.prove.ledger import digest_of, name_of

BODIES = ("m0:aa", "m1:bb", "m2:cc")


DIGESTS = {name_of(body): digest_of(body) for body in BODIES}


EXACT = Comparison(3, 3, 0, 0, 0)


def proof(acknowledged: int = 3, missing: int = 0, **read: Comparison) -> Proof:
    return Proof(1, 2, 1, 1, 0, acknowledged, missing, {PULL: EXACT, **read})


def test_where_no_row_went_in_nothing_was_shown() -> None:
    assert not compare([], []).is_exact
    assert not proof(acknowledged=0).is_exact
    assert proof().is_exact


def test_every_reader_must_agree() -> None:
    assert proof(files=EXACT).is_exact
    assert not proof(files=Comparison(3, 4, 0, 1, 0)).is_exact
    assert not proof(missing=1).is_exact


def test_a_changed_body_is_a_lost_row_and_a_strange_one() -> None:
    out = [f"out-{body}" for body in BODIES]
    assert compare_bodies(DIGESTS, out).is_exact
    assert compare_bodies(DIGESTS, [*out[:2], "out-m2:cd"]) == (3, 3, 1, 0, 1)
    assert compare_bodies(DIGESTS, [*out[:2], "m2:cc"]) == (3, 3, 1, 0, 1)
    assert compare_bodies(DIGESTS, [*out, out[0]]) == (3, 4, 0, 1, 0)


def test_acknowledged_rows_are_expected_whatever_the_topic_says() -> None:
    acknowledged = {name: DIGESTS[name] for name in ("m0", "m1")}
    # The topic has lost m1, and stored m2, which was never answered.
    intake = judge_intake(DIGESTS, acknowledged, ["m0:aa", "m2:cc"])
    assert (intake.digests, intake.acknowledged, intake.missing) == (DIGESTS, 2, 1)
    # A row without an answer that is not there was never stored.
    assert judge_intake(DIGESTS, acknowledged, BODIES[:2]) == (acknowledged, 2, 0)
    # An acknowledged row that is there twice, or changed.
    assert judge_intake(DIGESTS, acknowledged, [*BODIES[:2], BODIES[0]]).missing == 1
    assert judge_intake(DIGESTS, acknowledged, ["m0:aa", "m1:xx"]).missing == 1
