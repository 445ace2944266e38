"""TLS contexts from files: TLS 1.2 and newer, host name verification, client certificates.

There is no fallback: an unusable setting is an error that names the option.
"""

from __future__ import annotations

import enum
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from broker_core.errors import InvalidConfig
from broker_core.remoting.tls.certificate_watch import CertificateWatch

T = TypeVar("T")

# Time limit of a handshake.
HANDSHAKE_TIMEOUT_S: Final = 10.0


class TlsMode(enum.Enum):
    """Protocols of a server's port."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.Enum):
    """Whether clients must present a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


class OptionNames(NamedTuple):
    """Names of the caller's options, for errors."""

    certificate: str
    key: str
    authority: str


class ServerTls(NamedTuple):
    """TLS settings of a listening server."""

    context: ssl.SSLContext
    allows_plain: bool = False
    """Also serve clients without TLS on the same port."""
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S
    watch: CertificateWatch | None = None
    """Reloads certificates."""


def server_context(
    certificate: str,
    key: str,
    names: OptionNames,
    *,
    key_password: str = "",
    authority: str = "",
    client_auth: ClientAuth = ClientAuth.NONE,
) -> ssl.SSLContext:
    """A server context. Files are PEM; raises `InvalidConfig`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _load_chain(context, certificate, key, names, key_password)
    if client_auth is not ClientAuth.NONE:
        if not authority:
            accepted = "the authorities that issue the certificates of clients"
            raise InvalidConfig(names.authority, authority, accepted)
        _load_authority(context, authority, names)
        is_required = client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def server_tls(
    certificate: str,
    key: str,
    names: OptionNames,
    *,
    allows_plain: bool = False,
    key_password: str = "",
    authority: str = "",
    client_auth: ClientAuth = ClientAuth.NONE,
) -> ServerTls:
    """`server_context` with reload of changed files.

    An OpenSSL context cannot remove a trusted authority. So changed files make a new context, and
    the context of the listeners redirects every handshake to it.
    """

    def load() -> ssl.SSLContext:
        return server_context(
            certificate,
            key,
            names,
            key_password=key_password,
            authority=authority,
            client_auth=client_auth,
        )

    context = load()
    checks_clients = client_auth is not ClientAuth.NONE
    if checks_clients:
        # A resumed session would not be verified again.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    newest = [context]

    def take(loaded: ssl.SSLContext) -> None:
        newest[0] = loaded

    def choose(peer: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        peer.context = newest[0]

    context.sni_callback = choose
    files = (certificate, key, authority) if checks_clients else (certificate, key)
    return ServerTls(context, allows_plain, watch=CertificateWatch(files, load, take))


def client_context(
    names: OptionNames,
    *,
    authority: str = "",
    certificate: str = "",
    key: str = "",
    key_password: str = "",
    verify: bool = True,
) -> ssl.SSLContext:
    """A client context; without `authority` the system's authorities are trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority:
        _load_authority(context, authority, names)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if certificate or key:
        _load_chain(context, certificate, key, names, key_password)
    return context


def _load_chain(
    context: ssl.SSLContext, certificate: str, key: str, names: OptionNames, password: str
) -> None:
    for option, path in ((names.certificate, certificate), (names.key, key)):
        if not path:
            raise InvalidConfig(option, path, "a PEM file; certificate and key go together")
    _loaded(
        # Without a password callback OpenSSL would prompt on the terminal.
        lambda: context.load_cert_chain(certificate, key, password or (lambda: "")),
        names.certificate,
        f"{certificate} with key {key}",
        "a certificate and its key as PEM files",
    )


def _load_authority(context: ssl.SSLContext, authority: str, names: OptionNames) -> None:
    _loaded(
        lambda: context.load_verify_locations(cafile=authority),
        names.authority,
        authority,
        "a PEM file with certificates of authorities",
    )


def _loaded(load: Callable[[], T], option: str, shown: str, accepted: str) -> T:
    try:
        return load()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise InvalidConfig(option, shown, f"{accepted}: {reason}") from None
