"""Descriptor sets and names of messages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker_core import errors
from pyspark_rmq.payloads.protobuf.messages import field_of, message_class, shown_type
from tests.pyspark_rmq.payloads.protobuf.shop_messages import descriptor_set, given


def test_a_message_is_found_by_its_name() -> None:
    found = message_class(given())
    assert found.DESCRIPTOR.full_name == "shop.Order"
    assert shown_type(field_of(found.DESCRIPTOR, "big", "value")) == "uint64"
    assert shown_type(field_of(found.DESCRIPTOR, "line", "value")) == "message shop.Line"
    assert message_class(given("shop.Order.CountsEntry")) is not None


def test_a_name_that_is_not_there() -> None:
    listed = r"message Order is not in .*value\.schema\.file\. It has: .*old\.Old, .*shop\.Line, "
    with pytest.raises(errors.InvalidArgument, match=listed):
        message_class(given("Order"))
    with pytest.raises(errors.InvalidArgument, match=r"\.x: message shop\.Order has no field x"):
        field_of(message_class(given()).DESCRIPTOR, "x", "value")


@pytest.mark.parametrize(
    ("descriptors", "text"),
    [
        (b"syntax = 'proto3';", "it cannot be parsed"),
        (b"", "it has no files"),
        (descriptor_set(with_imports=False), "timestamp.proto.*--include_imports"),
    ],
)
def test_what_is_no_descriptor_set(descriptors: bytes, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        message_class(given(descriptors=descriptors))


def test_without_the_package_the_error_names_it() -> None:
    code = (
        "import sys; sys.modules['google.protobuf'] = None\n"
        "from broker_core import errors\n"
        "try:\n    import pyspark_rmq.payloads.protobuf.bodies\n"
        "except errors.InvalidArgument as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert "pip install 'pyspark-rmq[protobuf]'" in done.stdout
