"""Unknown properties: a hint with the nearest known name, as a warning or as an error."""

from __future__ import annotations

import pytest

from broker_core.broker.settings.unknown_properties import refuse_unknown, unknown_warnings
from broker_core.errors import InvalidArgument


def test_a_misspelled_name_gets_a_hint() -> None:
    assert unknown_warnings(["listenport", "zzz"]) == [
        "unknown property listenport: did you mean listenPort?",
        "unknown property zzz is ignored",
    ]


def test_long_names_are_cut() -> None:
    (warning,) = unknown_warnings(["z" * 5_000])
    assert len(warning) < 200


def test_known_names_are_accepted() -> None:
    refuse_unknown(
        {"listenPort": "0", "flushDiskType": "SYNC_FLUSH", "storePathRootDir": "x"}, "properties"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [("flushDiskTyp", "did you mean flushDiskType"), ("zzz", "docs/broker-configuration.md")],
)
def test_a_program_gets_an_error(name: str, hint: str) -> None:
    with pytest.raises(InvalidArgument, match=f"properties: unknown property '{name}'.*{hint}"):
        refuse_unknown({"listenPort": "0", name: "1"}, "properties")


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
