"""The delivery guarantee of a query."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import SinkClient, SyncAdmin, errors
from broker_core.client.connection.capabilities import BrokerCapabilities
from pyspark_rmq.sink import guarantee
from pyspark_rmq.sink.guarantee import decide_guarantee
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.sink_columns import find_columns
from tests.pyspark_rmq.sink.two_masters import A, B, Masters, unreachable_broker


@pytest.mark.parametrize("is_hung", [True, False])
@pytest.mark.parametrize("by", ["topic", "broker"])
def test_brokers_that_may_get_no_row_are_not_waited_for(
    on_masters: Callable[..., None], by: str, is_hung: bool
) -> None:
    def scenario(masters: Masters) -> None:
        masters.start(A, B)
        masters.topic("T", *([B] if by == "topic" else [A, B]))
        given = {} if by == "topic" else {"topic": "T"}
        options = SinkOptions.parse(
            {"rmq.namesrv.addr": masters.address, "rmq.retry.timeout.ms": "3000", **given}
        )
        columns = find_columns([("value", "string"), (by, "string")], options)
        with unreachable_broker(A), pytest.MonkeyPatch.context() as patch:
            of, address = BrokerCapabilities.of, _address_of(masters.address, A)

            async def unreachable(self: Any, asked: str) -> Any:
                if asked == address and is_hung:
                    await asyncio.get_running_loop().create_future()
                if asked == address:
                    raise errors.ConnectionLost("its machine is off")
                return await of(self, asked)

            patch.setattr(BrokerCapabilities, "of", unreachable)
            assert decide_guarantee(options, columns) == "exactly_once"

    on_masters(scenario)


def _address_of(name_server: str, broker: str) -> str:
    with SyncAdmin(name_server) as admin:
        return admin.cluster_info().brokers[broker].addresses[0]


def cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of Apache joined the topic."""

    async def is_supported(self: Any, name: str) -> bool:
        return False

    monkeypatch.setattr(SinkClient, "is_supported", is_supported)
    guarantee._decided.clear()


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_guarantee_that_changes_is_refused(
    on_masters: Callable[..., None], tmp_path: Path, has_checkpoint: bool
) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    given = {"checkpointLocation": str(checkpoint)} if has_checkpoint else {}
    sink = f"S-{uuid.uuid4()}"

    def scenario(masters: Masters) -> None:
        masters.start(A)
        masters.topic("T", A)
        masters.write(0, "T", ["a"], sink=sink, **given)
        with pytest.MonkeyPatch.context() as patch:
            cannot(patch)
            for _ in range(2):
                with pytest.raises(
                    errors.InvalidArgument, match=r"meant exactly_once .* means at_least_once now"
                ):
                    masters.write(0, "T", ["a"], sink=sink, run="run-2", **given)
            # An explicit option may change it; the new value is stored from then on.
            explicit = {**given, "deliveryGuarantee": "at_least_once"}
            masters.write(0, "T", ["a"], sink=sink, run="run-2", **explicit)
        guarantee._decided.clear()
        with pytest.raises(
            errors.InvalidArgument, match=r"meant at_least_once .* means exactly_once now"
        ):
            masters.write(1, "T", ["b"], sink=sink, run="run-3", **given)
        explicit = {**given, "deliveryGuarantee": "exactly_once"}
        masters.write(1, "T", ["b"], sink=sink, run="run-3", **explicit)

    on_masters(scenario)
