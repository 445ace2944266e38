"""Request signing and TLS of a client, from its configuration."""

from __future__ import annotations

import logging
import ssl
from typing import Final, Protocol

from broker_core.access.credentials import Credentials
from broker_core.access.request_signing import RequestSigner
from broker_core.errors import InvalidConfig
from broker_core.remoting.tls.context import OptionNames, client_context
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)

_NAMES: Final = OptionNames("tls_cert", "tls_key", "tls_ca")


class ClientSecurity(Protocol):
    """The security settings of a `ClientConfig`."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def security_token(self) -> str: ...
    @property
    def tls_enable(self) -> bool: ...
    @property
    def tls_ca(self) -> str: ...
    @property
    def tls_cert(self) -> str: ...
    @property
    def tls_key(self) -> str: ...
    @property
    def tls_verify(self) -> bool: ...


def check_security(config: ClientSecurity) -> None:
    """Raise `InvalidConfig` for a key without its secret, or TLS files without TLS."""
    if bool(config.access_key) != bool(config.secret_key):
        missing = "secret_key" if config.access_key else "access_key"
        raise InvalidConfig(missing, "", "an access key and its secret go together")
    if config.access_key:
        _credentials(config)
    elif config.security_token:
        raise InvalidConfig("security_token", "*****", "a token goes with access and secret key")
    if not config.tls_enable:
        for name in ("tls_ca", "tls_cert", "tls_key"):
            if getattr(config, name):
                raise InvalidConfig(name, getattr(config, name), "it needs tls_enable=true")
    if bool(config.tls_cert) != bool(config.tls_key):
        missing = "tls_key" if config.tls_cert else "tls_cert"
        raise InvalidConfig(missing, "", "a certificate and its key go together")


def request_signer(config: ClientSecurity, clock: Clock) -> RequestSigner | None:
    """Signs requests; None without an access key."""
    return RequestSigner(_credentials(config), clock) if config.access_key else None


def tls_context(config: ClientSecurity) -> ssl.SSLContext | None:
    """The TLS context; None without TLS. Reads the files."""
    if not config.tls_enable:
        return None
    if not config.tls_verify:
        _log.warning("TLS without verification does not protect against a man in the middle")
    return client_context(
        _NAMES,
        authority=config.tls_ca,
        certificate=config.tls_cert,
        key=config.tls_key,
        verify=config.tls_verify,
    )


def check_tls_files(ca: str, certificate: str, key: str, *, names: tuple[str, str, str]) -> None:
    """Raise `InvalidConfig` for a file that cannot be used; `names` are the caller's of the files,
    in their order.
    """
    name_of_ca, name_of_certificate, name_of_key = names
    known_as = OptionNames(name_of_certificate, name_of_key, name_of_ca)
    client_context(known_as, authority=ca, certificate=certificate, key=key)


def _credentials(config: ClientSecurity) -> Credentials:
    return Credentials(config.access_key, config.secret_key, config.security_token)
