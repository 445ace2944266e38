"""The configuration: bad values fail when it is made, naming key and value."""

from __future__ import annotations

import inspect

import pytest

from broker_core.config import PROPERTY_NAMES, StoreConfig
from broker_core.errors import InvalidConfig


@pytest.mark.parametrize("key", sorted(inspect.signature(StoreConfig).parameters))
def test_wrong_types(key: str) -> None:
    for value in (None, [], object(), 1.5, b"x"):
        with pytest.raises(InvalidConfig) as caught:
            StoreConfig(**{key: value})
        assert caught.value.key == key
        assert caught.value.value is value
        assert key in str(caught.value)


@pytest.mark.parametrize("key", sorted(PROPERTY_NAMES))
def test_properties(key: str) -> None:
    for text in ("", "  ", "x" * 50, "1.5", "-1", "0x10", "\0", "٣", "1_000", "1" * 5_000):
        try:
            StoreConfig.from_properties({key: text})
        except InvalidConfig as error:
            assert error.key == key
            assert key in str(error)
            assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("mappedFileSizeCommitLog", "5"),
        ("mappedFileSizeCommitLog", "2147483649"),
        ("mappedFileSizeCommitLog", "1_000_000"),
        ("mappedFileSizeConsumeQueue", "30"),
        ("flushDiskType", "sync_flush"),
        ("brokerRole", "MASTER"),
        ("messageIndexEnable", "yes"),
        ("listenPort", "70000"),
        ("brokerIP1", "localhost"),
        ("messageDelayLevel", "1s 5x"),
        ("messageDelayLevel", "²s"),
        ("messageDelayLevel", "-1s"),
        ("deleteWhen", "24"),
        ("deleteWhen", "²"),
        ("deleteWhen", ""),
        ("diskMaxUsedSpaceRatio", "101"),
        ("diskMaxUsedSpaceRatio", "0"),
        ("syncFlushTimeout", "٣"),
    ],
)
def test_the_key_and_value_of_the_operator_are_named(key: str, text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        StoreConfig.from_properties({key: text})
    assert caught.value.key == key
    assert str(caught.value.value).strip() == text
    assert key in str(caught.value)


def test_properties_that_are_no_texts() -> None:
    for properties in (None, 5, [("a", "b")], {"flushDiskType": 5}, {5: "x"}, "a=b"):
        with pytest.raises(InvalidConfig):
            StoreConfig.from_properties(properties)  # type: ignore[arg-type]


def test_good_properties() -> None:
    properties = {"flushDiskType": " ASYNC_FLUSH ", "deleteWhen": "04;16", "other": "x"}
    config, unknown = StoreConfig.from_properties(properties)
    assert config.flush_disk_type.value == "ASYNC_FLUSH"
    assert unknown == ("other",)


def test_a_pool_of_one_buffer_cannot_fail_fast() -> None:
    StoreConfig(transient_pool_size=1)
    with pytest.raises(InvalidConfig, match="transient_pool_size"):
        StoreConfig(transient_pool_size=1, transient_pool_fail_fast=True)
