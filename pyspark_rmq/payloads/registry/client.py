"""Schemas by id from a registry with Confluent's HTTP interface. No Arrow.

Schemas of an id never change, so each is fetched once in a process. Sizes, times, redirections and
the number of cached schemas are bounded.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import ssl
import time
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from broker_core import errors

TIMEOUT_S: Final = 10.0
SIZE_MAX: Final = 4 << 20
DEADLINE_S: Final = 30.0
_ATTEMPTS: Final = 3
# No such subject, version, schema.
_NOT_FOUND: Final = (40401, 40402, 40403)
_CACHED_MAX: Final = 1_000
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_READ_SIZE: Final = 1 << 16


class _BoundedReads(io.RawIOBase):
    """Reads of a connection, which all end before a deadline; timeouts alone bound each of them."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        # Keeps the connection open, which `http.client` may close before the body is read.
        self._inner = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise OSError(f"an answer that takes more than {DEADLINE_S:.0f} s")
        self._connection.settimeout(min(left, TIMEOUT_S))
        return self._inner.readinto(buffer)

    def close(self) -> None:
        self._inner.close()
        super().close()


class RegistryError(errors.RmqError):
    """A schema could not be fetched."""


class RegistryAddress(NamedTuple):
    """Where a registry is. Plain values, pickled for executors."""

    url: str = ""
    user: str = ""
    password: str = ""
    schema_id: int | None = None
    """The schema of a sink, or of a reader without columns."""

    def __repr__(self) -> str:
        # Without the password.
        return f"<schema registry {self.url}>"


class FoundSchema(NamedTuple):
    """A schema of a registry, or the reason why it cannot be used."""

    text: str = ""
    problem: str = ""


_cached: dict[tuple[RegistryAddress, int], FoundSchema] = {}


def check_url(name: str, text: str) -> str:
    """The address of a registry without a slash at the end. Raises `InvalidConfig`."""
    url = text.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
        # Raises for a port that is no number.
        _ = parts.port
    except ValueError:
        is_known = is_plain = False
    if is_known and is_plain and url.isascii() and url.isprintable() and " " not in url:
        return url
    raise errors.InvalidConfig(
        # A password in an address would be in logs.
        name,
        url if is_plain else "*****",
        "an address such as http://registry:8081; name the account with"
        " value.schema.registry.user and value.schema.registry.password",
    )


def fetch_schema(address: RegistryAddress, number: int) -> FoundSchema | None:
    """The schema of an id; None if the registry has none. Raises `RegistryError`."""
    place = address._replace(schema_id=None)
    found = _cached.get((place, number))
    if found is not None:
        return found
    answer = _answer(place, number)
    if answer is None:
        return None
    found = _schema(answer, number)
    while len(_cached) >= _CACHED_MAX:
        _cached.pop(next(iter(_cached)))
    _cached[place, number] = found
    return found


def needed_schema(address: RegistryAddress, number: int) -> str:
    """The text of a schema. Raises `InvalidArgument` if it cannot be used, or `RegistryError`."""
    found = fetch_schema(address, number)
    if found is None:
        raise errors.InvalidArgument(f"the schema registry {address.url} has no schema {number}")
    if found.problem:
        raise errors.InvalidArgument(f"the schema registry {address.url}: {found.problem}")
    return found.text


def _schema(answer: Any, number: int) -> FoundSchema:
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        return FoundSchema(problem=f"schema {number} is {kind!r:.40}, not AVRO")
    if answer.get("references"):
        return FoundSchema(
            problem=f"schema {number} has references to other schemas, which are not followed"
        )
    return FoundSchema(answer["schema"])


def _answer(address: RegistryAddress, number: int) -> Any:
    """The JSON object of the answer; None if the registry has no such schema."""
    for attempt in range(_ATTEMPTS):
        is_last = attempt == _ATTEMPTS - 1
        try:
            status, body = _request(address, f"/schemas/ids/{number}")
        except (OSError, http.client.HTTPException) as error:
            if is_last:
                raise _failed(address, number, f"{type(error).__name__}: {error}") from None
            continue
        if status == 200:
            return _object(address, number, body)
        if status == 404 and _is_refusal(body):
            return None
        if status in (401, 403):
            raise _failed(
                address,
                number,
                f"it answers {status}: check value.schema.registry.user and"
                " value.schema.registry.password",
            )
        if is_last or status < 500:
            break
    if status == 404:
        reason = "it answers 404, but not as a registry that lacks the schema: check the address"
        raise _failed(address, number, reason)
    raise _failed(address, number, f"it answers {status}")


def _is_refusal(body: bytes) -> bool:
    """Whether a 404 is a registry's own, not that of a proxy, or of another service."""
    try:
        found = json.loads(body)
        return found["error_code"] in _NOT_FOUND
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _object(address: RegistryAddress, number: int, body: bytes) -> Any:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("schema"), str):
        return found
    raise _failed(address, number, "its answer is no JSON object with a schema")


def _request(address: RegistryAddress, path: str) -> tuple[int, bytes]:
    parts = urlsplit(address.url)
    headers = {"Accept": _ACCEPT}
    if address.user:
        account = f"{address.user}:{address.password}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(account).decode()
    connection = _connection(parts)
    deadline = time.monotonic() + DEADLINE_S

    def bounded(connection: socket.socket, *given: Any, **more: Any) -> http.client.HTTPResponse:
        response = http.client.HTTPResponse(connection, *given, **more)
        response.fp.close()
        response.fp = io.BufferedReader(_BoundedReads(connection, deadline))
        return response

    connection.response_class = bounded  # type: ignore[assignment]
    try:
        # Redirections are not followed: the account is for this address.
        connection.request("GET", parts.path + path, headers=headers)
        response = connection.getresponse()
        body = bytearray()
        while part := response.read1(_READ_SIZE):
            body += part
            if len(body) > SIZE_MAX:
                raise OSError(f"an answer of more than {SIZE_MAX} bytes")
        return response.status, bytes(body)
    finally:
        connection.close()


def _connection(parts: SplitResult) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)


def _failed(address: RegistryAddress, number: int, reason: str) -> RegistryError:
    return RegistryError(
        errors.explained(
            f"schema {number} cannot be fetched from the schema registry {address.url}"
            f" (option value.schema.registry.url): {reason}",
            "schema-registry",
        )
    )
