"""Schemas from an HTTP server: answers of every kind, the cache, and bounds."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from broker_core import errors
from pyspark_rmq.payloads.registry import client
from pyspark_rmq.payloads.registry.client import (
    SIZE_MAX,
    RegistryAddress,
    RegistryError,
    check_url,
    fetch_schema,
    needed_schema,
)
from tests.pyspark_rmq.payloads.registry.http_registry import HttpRegistry, http_registry


@pytest.fixture
def registry() -> Iterator[HttpRegistry]:
    with http_registry() as running:
        yield running


def test_each_schema_is_fetched_once(registry: HttpRegistry) -> None:
    registry.add(7, "int")
    address = RegistryAddress(registry.url, "user", "secret")
    found = fetch_schema(address, 7)
    assert found is not None and found.text == '"int"'
    assert fetch_schema(address._replace(schema_id=7), 7) is found
    assert registry.asked == ["/schemas/ids/7"]
    assert registry.accounts == ["Basic dXNlcjpzZWNyZXQ="]
    assert fetch_schema(address, 8) is None
    assert "secret" not in repr(address)


def test_schemas_that_cannot_be_used(registry: HttpRegistry) -> None:
    registry.add(1, "x", schemaType="PROTOBUF")
    registry.add(2, "x", references=[{"name": "a"}])
    address = RegistryAddress(registry.url)
    for number, text in ((1, "schema 1 is 'PROTOBUF', not AVRO"), (2, "has references to other")):
        found = fetch_schema(address, number)
        assert found is not None and text in found.problem
        with pytest.raises(errors.InvalidArgument, match=text):
            needed_schema(address, number)
    with pytest.raises(errors.InvalidArgument, match="has no schema 3"):
        needed_schema(address, 3)


@pytest.mark.parametrize(
    ("answer", "text", "attempts"),
    [
        ((500, b"down"), "it answers 500", 3),
        ((401, b""), "it answers 401: check value.schema.registry.user", 1),
        ((302, b""), "it answers 302", 1),
        # Of a proxy whose registry is away: bodies must not be bad records.
        (
            (404, b"default backend"),
            "it answers 404, but not as a registry .* check the address",
            1,
        ),
        ((404, {"error_code": 404}), "it answers 404, but not as a registry", 1),
        ((404, b"[]"), "it answers 404, but not as a registry", 1),
        ((200, b"<html>"), "no JSON object with a schema", 1),
        ((200, b'{"schema": 5}'), "no JSON object with a schema", 1),
        ((200, b"[" * 100_000), "no JSON object with a schema", 1),
        ((200, b" " * (SIZE_MAX + 1)), f"more than {SIZE_MAX} bytes", 3),
    ],
)
def test_answers_that_are_errors(
    registry: HttpRegistry, answer: tuple[int, Any], text: str, attempts: int
) -> None:
    registry.answers["/schemas/ids/5"] = answer
    with pytest.raises(RegistryError, match=f"schema 5 cannot be fetched from .*{text}"):
        fetch_schema(RegistryAddress(registry.url), 5)
    assert registry.asked == ["/schemas/ids/5"] * attempts


def test_no_server_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RegistryError, match=rf"127\.0\.0\.1:{port}.*ConnectionRefusedError"):
        fetch_schema(RegistryAddress(f"http://127.0.0.1:{port}"), 5)


def test_an_answer_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read succeeds, so that a timeout of each of them never does anything."""
    monkeypatch.setattr(client, "DEADLINE_S", 0.2)
    waits = b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000
    ends = b'HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{"schema":"int"}'

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                # Ends when the client is gone.
                with connection, contextlib.suppress(ConnectionError):
                    connection.recv(10_000)
                    for _ in range(1_000):
                        connection.sendall(waits)
                    finished.append(port)
                    connection.sendall(ends)

    finished: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        address = RegistryAddress(f"http://127.0.0.1:{port}")
        thread = Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(RegistryError, match=r"more than 0 s|timed out"):
                fetch_schema(address, 5)
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert not finished, "it was listened to until it ended"


def test_addresses() -> None:
    assert check_url("u", " https://h:1/api/ ") == "https://h:1/api"
    for text in ("h:8081", "ftp://h", "http://", "http://h:x", "http://h?a=b", "http://h/a b"):
        with pytest.raises(errors.InvalidConfig, match="http://registry:8081"):
            check_url("value.schema.registry.url", text)
    with pytest.raises(errors.InvalidConfig) as raised:
        check_url("value.schema.registry.url", "http://user:secret@h")
    assert "secret" not in str(raised.value)
