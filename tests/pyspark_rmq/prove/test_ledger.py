"""The ledger of acknowledged rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_rmq.prove.ledger import Entry, Ledger, digest_of, name_of

BODIES = ("m0:aa", "m1:bb", "m2:cc")


DIGESTS = {name_of(body): digest_of(body) for body in BODIES}


def test_a_ledger_has_every_row_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.digests() == {}
    ledger.add(Entry(name_of(body), digest_of(body), "ID") for body in BODIES[:2])
    ledger.add([Entry("m2", digest_of("m2:cc"), "ID")])
    assert Ledger(ledger.path).digests() == DIGESTS
    ledger.add([Entry("m2", digest_of("m2:dd"), "ID")])
    with pytest.raises(ValueError, match="m2"):
        ledger.digests()
