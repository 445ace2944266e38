"""TLS of a name server's port, from the options of `rmq namesrv`."""

from __future__ import annotations

from typing import Final

from broker_core.errors import InvalidConfig
from broker_core.remoting.tls.context import (
    ClientAuth,
    OptionNames,
    ServerTls,
    TlsMode,
    server_tls,
)

TLS_MODES: Final = tuple(mode.value for mode in TlsMode)

_NAMES: Final = OptionNames("--tls-cert", "--tls-key", "--tls-client-ca")


def port_encryption(
    mode: str, certificate: str = "", key: str = "", client_authority: str = ""
) -> ServerTls | None:
    """None for plain text only. Raises `InvalidConfig` with the options of `rmq namesrv`."""
    chosen = TlsMode(mode)
    if chosen is TlsMode.DISABLED:
        for option, path in zip(_NAMES, (certificate, key, client_authority), strict=True):
            if path:
                raise InvalidConfig(option, path, "it needs --tls-mode permissive or enforcing")
        return None
    return server_tls(
        certificate,
        key,
        _NAMES,
        allows_plain=chosen is TlsMode.PERMISSIVE,
        authority=client_authority,
        client_auth=ClientAuth.REQUIRE if client_authority else ClientAuth.NONE,
    )
