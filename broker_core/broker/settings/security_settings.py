"""Checks of the settings for accounts, TLS and metrics, without touching a file."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from broker_core.errors import InvalidConfig

METRICS_EXPORTERS: Final = ("DISABLE", "PROM")

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "tls_server_mode": ("disabled", "permissive", "enforcing"),
    "tls_server_client_auth": ("none", "optional", "require"),
    "metrics_exporter": METRICS_EXPORTERS,
}


def check_security_settings(config: Any) -> None:
    """Raise `InvalidConfig` for settings of a `BrokerConfig` that cannot work together."""
    for name, accepted in _CHOICES.items():
        if getattr(config, name) not in accepted:
            raise InvalidConfig(name, getattr(config, name), f"one of {', '.join(accepted)}")
    if config.acl_enable and not config.access_file:
        raise InvalidConfig("access_file", "", "the file with the accounts, because aclEnable=true")
    if config.access_file and not config.acl_enable:
        raise InvalidConfig("access_file", config.access_file, "it needs aclEnable=true")
    if bool(config.inner_access_key) != bool(config.inner_secret_key_file):
        name = "inner_secret_key_file" if config.inner_access_key else "inner_access_key"
        raise InvalidConfig(name, "", "innerAccessKey and innerSecretKeyFile go together")
    _check_tls(config)
    if config.ha_tls_enable and (
        config.tls_server_mode == "disabled" or not config.tls_client_enable
    ):
        raise InvalidConfig(
            "ha_tls_enable",
            True,
            "it needs tlsServerMode=permissive or enforcing for slaves that connect here, and "
            "tls.enable=true for the time when this broker is a slave itself",
        )
    try:
        is_local = ipaddress.ip_address(config.metrics_host).is_loopback
    except ValueError:
        raise InvalidConfig("metrics_host", config.metrics_host, "a numeric IP address") from None
    may_be_remote = config.allow_remote and config.acl_enable
    if config.metrics_exporter == "PROM" and not is_local and not may_be_remote:
        raise InvalidConfig(
            "metrics_host",
            config.metrics_host,
            "127.0.0.1, or allowRemote=true and aclEnable=true: metrics tell the names of topics "
            "and groups",
        )
    if config.metrics_token_file and config.metrics_allow_without_token:
        raise InvalidConfig(
            "metrics_allow_without_token", True, "metricsTokenFile or this setting, not both"
        )
    is_guarded = config.metrics_token_file or config.metrics_allow_without_token
    if config.metrics_exporter == "PROM" and not is_local and not is_guarded:
        raise InvalidConfig(
            "metrics_token_file",
            "",
            f"a file with the token that scrapers show, because other machines can reach "
            f"{config.metrics_host}; or metricsAllowWithoutToken=true to show the names of topics "
            "and groups to all of them",
        )


def _check_tls(config: Any) -> None:
    if config.tls_server_mode != "disabled":
        for name in ("tls_server_cert", "tls_server_key"):
            if not getattr(config, name):
                raise InvalidConfig(name, "", f"a PEM file, for {config.tls_server_mode} TLS")
        if config.tls_server_client_auth != "none" and not config.tls_server_trust:
            accepted = "the authorities that issue the certificates of clients"
            raise InvalidConfig("tls_server_trust", "", accepted)
    if bool(config.tls_client_cert) != bool(config.tls_client_key):
        name = "tls_client_key" if config.tls_client_cert else "tls_client_cert"
        raise InvalidConfig(name, "", "a certificate and its key go together")
    for name in ("tls_client_trust", "tls_client_cert", "tls_client_key"):
        if getattr(config, name) and not config.tls_client_enable:
            raise InvalidConfig(name, getattr(config, name), "it needs tls.enable=true")
