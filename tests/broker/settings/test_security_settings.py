"""Settings of accounts, TLS and metrics that exclude each other."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.settings.security_settings import check_security_settings
from broker_core.errors import InvalidConfig

TLS = {"tls_server_mode": "enforcing", "tls_server_cert": "c", "tls_server_key": "k"}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"tls_server_mode": "sometimes"}, "tls_server_mode"),
        ({"metrics_exporter": "OTLP"}, "metrics_exporter"),
        ({"acl_enable": True}, "access_file"),
        ({"access_file": "a.json"}, "access_file"),
        ({"inner_access_key": "k"}, "inner_secret_key_file"),
        ({"inner_secret_key_file": "s"}, "inner_access_key"),
        ({**TLS, "tls_server_key": ""}, "tls_server_key"),
        ({**TLS, "tls_server_client_auth": "require"}, "tls_server_trust"),
        ({"tls_client_cert": "c", "tls_client_enable": True}, "tls_client_key"),
        ({"tls_client_trust": "t"}, "tls_client_trust"),
        ({"ha_tls_enable": True}, "ha_tls_enable"),
        ({"metrics_host": "localhost"}, "metrics_host"),
        ({"metrics_host": "0.0.0.0", "metrics_exporter": "PROM"}, "metrics_host"),
        (
            {"metrics_token_file": "t", "metrics_allow_without_token": True},
            "metrics_allow_without_token",
        ),
    ],
)
def test_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        BrokerConfig(**changes)
    assert refusal.value.key == key


@pytest.mark.parametrize(
    "changes",
    [
        {},
        TLS,
        {"metrics_exporter": "PROM", "metrics_host": "127.0.0.1"},
        {**TLS, "tls_client_enable": True, "ha_tls_enable": True},
    ],
)
def test_accepted(changes: dict[str, Any]) -> None:
    check_security_settings(BrokerConfig(**changes))
