"""Synchronous faces take over every method of their asynchronous class, as it is."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core import (
    Admin,
    DeadLetters,
    Producer,
    PullConsumer,
    PushConsumer,
    SyncAdmin,
    SyncDeadLetters,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncTransactionProducer,
    TransactionProducer,
)
from broker_core.client.blocking.sink import SyncStageWriter
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.client.produce.result import SendResult
from broker_core.client.sink.stage_writer import StageWriter

FACES: list[tuple[type, type]] = [
    (Admin, SyncAdmin),
    (DeadLetters, SyncDeadLetters),
    (Producer, SyncProducer),
    (PullConsumer, SyncPullConsumer),
    (PushConsumer, SyncPushConsumer),
    (TransactionProducer, SyncTransactionProducer),
]
# By hand: the asynchronous one is an asynchronous iterator.
OWN_SIGNATURE = {"stream"}


def public_methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name, value in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name, value


@pytest.mark.parametrize(("asynchronous", "face"), FACES)
def test_a_face_has_every_method(asynchronous: type, face: type) -> None:
    wanted = {name for name, _ in public_methods(asynchronous)}
    # `open` and `close` take their place.
    wanted -= {name for name, _ in public_methods(Lifecycle)}
    assert wanted - {name for name, _ in public_methods(face)} == set()


@pytest.mark.parametrize(("asynchronous", "face"), [*FACES, (StageWriter, SyncStageWriter)])
def test_a_method_keeps_its_parameters_and_does_not_need_await(
    asynchronous: type, face: type
) -> None:
    for name, method in public_methods(face):
        original = getattr(asynchronous, name, None)
        assert not inspect.iscoroutinefunction(method)
        if original is not None and name not in OWN_SIGNATURE:
            assert inspect.signature(method).parameters == inspect.signature(original).parameters
            assert method.__doc__


def test_the_result_of_a_future_is_the_type_that_is_returned() -> None:
    assert inspect.signature(SyncProducer.send).return_annotation == "SendResult"
    assert typing.get_type_hints(SyncProducer.send)["return"] is SendResult
    batch = inspect.signature(SyncProducer.send_batch)
    assert batch.return_annotation == "tuple[SendResult, ...]"
    bound = inspect.signature(SyncProducer("127.0.0.1:1").send)
    assert next(iter(bound.parameters)) == "message"
