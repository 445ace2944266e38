"""What Spark is given of an error: the message, and one frame."""

from __future__ import annotations

import traceback

import pytest

from broker_core import errors
from pyspark_rmq.data_source import RmqDataSource
from pyspark_rmq.short_errors import short_errors


def test_no_frames_lead_to_the_message() -> None:
    source = RmqDataSource({"subscribe": "t", "kafka.bootstrap.servers": "h:1"})
    with pytest.raises(errors.InvalidArgument, match="one of Kafka's") as found:
        source.schema()
    shown = "".join(traceback.format_exception(found.value)).splitlines()
    assert [line for line in shown if "options.py" in line] == []
    assert "During handling" not in "".join(shown)


def test_silent_name_servers_are_explained() -> None:
    @short_errors
    def plan() -> None:
        raise errors.NameServersSilent("none of the name servers h:1 answered: no route")

    with pytest.raises(errors.ConnectionLost) as found:
        plan()
    assert str(found.value) == (
        "none of the name servers h:1 answered: no route. Set the option rmq.namesrv.addr to name"
        " servers that this machine can reach, or start the cluster\n"
        "See docs/errors.md#name-servers-not-reached"
    )


def test_other_errors_and_results_stay() -> None:
    @short_errors
    def halved(number: int) -> float:
        return 1 / number

    assert halved(2) == 0.5
    with pytest.raises(ZeroDivisionError) as found:
        halved(0)
    assert len(traceback.extract_tb(found.value.__traceback__)) == 3
