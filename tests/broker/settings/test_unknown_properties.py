"""Properties that no broker has, with the nearest name."""

from __future__ import annotations

import pytest

from broker_core.broker.settings.unknown_properties import refuse_unknown, unknown_warnings
from broker_core.errors import InvalidArgument


def test_unknown_properties_come_with_the_nearest_name() -> None:
    assert unknown_warnings(["brokername", "flushDiskTyp", "zzzz"]) == [
        "unknown property brokername: did you mean brokerName?",
        "unknown property flushDiskTyp: did you mean flushDiskType?",
        "unknown property zzzz is ignored",
    ]


def test_names_of_both_versions_and_of_the_store_are_known() -> None:
    known = ["brokerName", "haMaxGapNotInSync", "mappedFileSizeCommitLog", "abortFile", "useTLS"]
    refuse_unknown(dict.fromkeys(known, ""), "option -p")
    with pytest.raises(InvalidArgument, match=r"^option -p: unknown property 'brokername': did"):
        refuse_unknown({"brokerName": "a", "brokername": "b"}, "option -p")
