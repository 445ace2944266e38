"""Keys and TLS files of a client that do not fit together."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.security import request_signer, tls_context
from broker_core.errors import InvalidConfig
from tests.fakes.manual_clock import ManualClock

SECRET = "a secret of enough characters"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"access_key": "someone"}, "secret_key"),
        ({"secret_key": SECRET}, "access_key"),
        ({"security_token": "t"}, "security_token"),
        ({"tls_ca": "ca.pem"}, "tls_ca"),
        ({"tls_enable": True, "tls_cert": "c.pem"}, "tls_key"),
        ({"tls_enable": True, "tls_key": "k.pem"}, "tls_cert"),
    ],
)
def test_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        ClientConfig("127.0.0.1:9876", **changes)
    assert refusal.value.key == key
    assert SECRET not in str(refusal.value)


def test_without_settings_requests_are_neither_signed_nor_encrypted() -> None:
    config = ClientConfig("127.0.0.1:9876")  # type: ignore[arg-type]
    assert request_signer(config, ManualClock()) is None
    assert tls_context(config) is None


def test_with_a_key_requests_are_signed() -> None:
    config = ClientConfig("127.0.0.1:9876", access_key="someone", secret_key=SECRET)  # type: ignore[arg-type]
    assert request_signer(config, ManualClock()) is not None
