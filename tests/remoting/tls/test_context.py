"""TLS and plain text on one port: accepted and rejected peers, without effect on others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ConnectionLost, InvalidConfig, TlsFailed
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.server import RemotingServer
from broker_core.remoting.tls.context import (
    ClientAuth,
    OptionNames,
    ServerTls,
    client_context,
    server_context,
    server_tls,
)
from tests.codec.wire_frames import frame_bytes
from tests.remoting.certificates import Authority, PemFiles
from tests.remoting.peers import client, echo, small_limits, until

NAMES = OptionNames("certOption", "keyOption", "caOption")
TIMEOUT_MS = 120_000
# Handshakes of peers that are honest may take as long as a busy machine needs.
HANDSHAKE_S = 60.0
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a scenario on each kind of event loop."""
    if request.param == "asyncio":
        return asyncio.run
    uvloop = pytest.importorskip("uvloop")

    def on_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
        loop = uvloop.new_event_loop()
        try:
            loop.run_until_complete(scenario)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return on_uvloop


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def context_for(
    files: PemFiles, authority: str = "", client_auth: ClientAuth = ClientAuth.NONE
) -> ssl.SSLContext:
    return server_context(*files, NAMES, authority=authority, client_auth=client_auth)


@contextlib.asynccontextmanager
async def serving(
    context: ssl.SSLContext,
    *,
    allows_plain: bool = False,
    handshake_s: float = HANDSHAKE_S,
    **limits: int,
) -> AsyncIterator[tuple[RemotingServer, str]]:
    tls = ServerTls(context, allows_plain, handshake_s)
    server = RemotingServer(echo, small_limits(**limits), tls)
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, f"127.0.0.1:{port}"
    finally:
        await server.stop(1_000)


async def echoed(one: RemotingClient, address: str, body: bytes = b"x") -> RemotingCommand:
    answer = await one.request(address, RemotingCommand(1, {"a": "b"}, body), TIMEOUT_MS)
    assert bytes(answer.body) == body
    return answer


async def raw(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def bye(writer: asyncio.StreamWriter) -> None:
    """Close it and see it gone."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Everything until the server closes the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 120)
    except OSError:
        return b""


def trusting(authority: Authority, **options: Any) -> dict[str, Any]:
    return {"ssl_context": client_context(NAMES, authority=authority.path, **options)}


def test_frames_of_every_size_go_through(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        async with (
            serving(context_for(authority.issue("server"))) as (server, address),
            client(**trusting(authority)) as one,
        ):
            for size in (0, 1, 16 << 10, 60 << 10):
                await echoed(one, address, os.urandom(size))
            await asyncio.gather(*(echoed(one, address, os.urandom(900)) for _ in range(200)))
            (connection,) = server.connections
            assert connection.is_encrypted
            assert server.budget.connections == 1

    run(scenario())


def test_records_are_received_in_place_as_well(run: Run, authority: Authority) -> None:
    room = (
        "write_buffer_max",
        "ip_in_flight_size_max",
        "in_flight_size_max",
        "unauthenticated_size_max",
    )
    limits = {"frame_size_max": 4 << 20, **dict.fromkeys(room, 16 << 20)}

    async def scenario() -> None:
        async with (
            serving(context_for(authority.issue("server")), **limits) as (_, address),
            client(**trusting(authority)) as one,
        ):
            for size in (100_000, 3 << 20):
                body = os.urandom(size)
                command = RemotingCommand(RequestCode.BULK_PULL, body=body)
                answer = await one.request(address, command, TIMEOUT_MS)
                assert type(answer.body) is memoryview
                assert answer.body == body

    run(scenario())


def test_one_port_serves_both_when_permissive(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        context = context_for(authority.issue("server"))
        async with (
            serving(context, allows_plain=True) as (server, address),
            client(**trusting(authority)) as encrypted,
            client() as plain,
        ):
            await asyncio.gather(*(echoed(one, address) for one in (encrypted, plain)))
            found = sorted(connection.is_encrypted for connection in server.connections)
            assert found == [False, True]
            assert server.budget.connections == 2
        assert server.budget.connections == 0

    run(scenario())


def test_plain_text_is_closed_when_enforcing(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        context = context_for(authority.issue("server"))
        async with serving(context) as (_, address), client(**trusting(authority)) as good:
            async with client() as plain:
                with pytest.raises(ConnectionLost, match="it may require TLS"):
                    await echoed(plain, address)
            reader, writer = await raw(address)
            writer.write(frame_bytes(RemotingCommand(1, {})))
            assert await until_closed(reader) == b""
            await bye(writer)
            await echoed(good, address)

    run(scenario())


def test_a_client_with_tls_never_talks_plain_text(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        server = RemotingServer(echo, small_limits())
        port = await server.start("127.0.0.1", 0)
        async with client(**trusting(authority)) as one:
            with pytest.raises(TlsFailed, match=f"127.0.0.1:{port}.*may not speak TLS"):
                await echoed(one, f"127.0.0.1:{port}")
        await until(lambda: not server.connections)
        await server.stop(100)

    run(scenario())


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"hosts": ("127.0.0.2", "example.org")}, "IP address mismatch"),
        ({"hosts": ("localhost",)}, "IP address mismatch"),
        ({"expired": True}, "certificate has expired"),
        ({"authority": "unknown"}, "unable to get local issuer certificate"),
    ],
)
def test_certificates_that_do_not_fit_are_refused(
    run: Run, tmp_path: Path, authority: Authority, made: dict[str, Any], reason: str
) -> None:
    issuer = Authority(tmp_path, "unknown") if "authority" in made else authority
    files = issuer.issue("server", *made.get("hosts", ()), expired=made.get("expired", False))

    async def scenario() -> None:
        async with serving(context_for(files)) as (server, address):
            async with client(**trusting(authority)) as one:
                with pytest.raises(TlsFailed, match=reason) as raised:
                    await echoed(one, address)
                assert address in str(raised.value)
            await until(lambda: not server.connections)
            async with client(ssl_context=client_context(NAMES, verify=False)) as careless:
                await echoed(careless, address)

    run(scenario())


def test_a_self_signed_certificate_is_refused_without_its_authority(
    run: Run, authority: Authority
) -> None:
    async def scenario() -> None:
        async with (
            serving(context_for(authority.issue("server"))) as (_, address),
            client(ssl_context=client_context(NAMES)) as one,
        ):
            with pytest.raises(TlsFailed, match="rejected"):
                await echoed(one, address)

    run(scenario())


def test_a_name_is_verified_as_well(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        context = context_for(authority.issue("server", "localhost"))
        async with serving(context) as (_, address), client(**trusting(authority)) as one:
            await echoed(one, address.replace("127.0.0.1", "localhost"))

    run(scenario())


def test_authorities_of_clients_are_taken_up_and_given_up(
    run: Run, tmp_path: Path, authority: Authority
) -> None:
    """A client whose authority was taken out of the file does not get in any more."""
    other = Authority(tmp_path, "other")
    before, after = authority.issue("before"), other.issue("after")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(Path(authority.path).read_bytes())
    others = Path(other.path).read_bytes()

    async def scenario() -> None:
        tls = server_tls(
            *authority.issue("server"), NAMES,
            authority=str(trusted), client_auth=ClientAuth.REQUIRE,
        )  # fmt: skip
        assert tls.watch is not None

        async def gets_in(files: PemFiles, address: str) -> bool:
            shown = {"certificate": files[0], "key": files[1]}
            async with client(**trusting(authority, **shown)) as one:
                try:
                    await echoed(one, address)
                except ConnectionLost:
                    return False
                return True

        async with serving(tls.context) as (_, address):
            assert await gets_in(before, address)
            assert not await gets_in(after, address)
            trusted.write_bytes(others + b"\n")
            assert await tls.watch.check()
            assert not await gets_in(before, address)
            assert await gets_in(after, address)
            # What cannot be used changes nothing.
            trusted.write_bytes(b"no certificate")
            assert not await tls.watch.check()
            assert await gets_in(after, address)

    trusted.write_bytes(Path(authority.path).read_bytes())
    run(scenario())


def test_certificates_of_clients(run: Run, tmp_path: Path, authority: Authority) -> None:
    unknown = Authority(tmp_path, "unknown")
    mine, foreign = authority.issue("mine"), unknown.issue("foreign")

    async def scenario(client_auth: ClientAuth) -> None:
        context = context_for(authority.issue("server"), authority.path, client_auth)
        async with serving(context) as (_, address):
            for files, welcome in (
                (mine, True),
                (None, client_auth is ClientAuth.OPTIONAL),
                (foreign, False),
            ):
                shown = {"certificate": files[0], "key": files[1]} if files else {}
                async with client(**trusting(authority, **shown)) as one:
                    if welcome:
                        await echoed(one, address)
                    else:
                        with pytest.raises(ConnectionLost):
                            await echoed(one, address)

    run(scenario(ClientAuth.REQUIRE))
    run(scenario(ClientAuth.OPTIONAL))


def test_old_versions_are_refused(run: Run, authority: Authority) -> None:
    """A hello that offers TLS 1.1 at most gets the alert that says so."""
    hello = b"\x03\x02" + bytes(32) + b"\x00" + b"\x00\x04\xc0\x09\xc0\x13" + b"\x01\x00"
    handshake = b"\x01" + len(hello).to_bytes(3, "big") + hello

    async def scenario() -> None:
        context = context_for(authority.issue("server"))
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert client_context(NAMES).minimum_version is ssl.TLSVersion.TLSv1_2
        async with serving(context) as (_, address):
            reader, writer = await raw(address)
            writer.write(b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake)
            # Alert, fatal, protocol_version; uvloop closes before it has left
            assert (await until_closed(reader))[-2:] in (b"\x02\x46", b"")
            await bye(writer)

    run(scenario())


GARBAGE = {
    "random": os.urandom(2_000),
    "a hello of nothing": b"\x16\x03\x01\x00\x00",
    "a hello that ends": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(20),
    "records of 64 KiB": b"\x16\x03\x01\xff\xff" + bytes(1 << 16),
    "an alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "one byte": b"\x16",
    "nothing": b"",
}


@pytest.mark.parametrize("allows_plain", [False, True])
def test_garbage_closes_its_own_connection(
    run: Run, authority: Authority, allows_plain: bool
) -> None:
    async def scenario() -> None:
        context = context_for(authority.issue("server"))
        async with (
            serving(context, allows_plain=allows_plain) as (server, address),
            client(**trusting(authority)) as good,
        ):
            await echoed(good, address)
            for data in GARBAGE.values():
                reader, writer = await raw(address)
                with contextlib.suppress(ConnectionError):
                    writer.write(data)
                    await writer.drain()
                    if writer.can_write_eof():
                        writer.write_eof()
                await until_closed(reader)
                await bye(writer)
                await echoed(good, address)
            await until(lambda: server.budget.connections == 1)

    run(scenario())


async def half_open(address: str) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Three connections that are silent, and three whose handshakes stop half way."""
    opened = [await raw(address) for _ in range(6)]
    for _, writer in opened[3:]:
        writer.write(b"\x16\x03\x01\x02\x00\x01")
    return opened


def test_half_handshakes_count(run: Run, authority: Authority) -> None:
    """Silence, and handshakes that stop half way, have a place in the limits."""

    async def scenario() -> None:
        context = context_for(authority.issue("server"))
        async with (
            serving(context, handshake_s=3_600, partial_frame_timeout_ms=3_600_000,
                    connections_max=8) as (server, address),
            client(**trusting(authority)) as good,
        ):  # fmt: skip
            await echoed(good, address)
            opened = await half_open(address)
            await until(lambda: server.budget.connections == 7)
            crowd = [await raw(address) for _ in range(4)]
            for reader, _ in crowd[1:]:
                await until_closed(reader)
            assert server.budget.connections == 8
            await echoed(good, address)
            for _, writer in [*opened, *crowd]:
                await bye(writer)
            await until(lambda: server.budget.connections == 1)

    run(scenario())


def test_half_handshakes_end(run: Run, authority: Authority) -> None:
    """Handshakes have a deadline; established connections are not affected."""

    async def scenario() -> None:
        # Like `ServerTls`, but deadlines become short only when an honest peer is through.
        tls: Any = SimpleNamespace(
            context=context_for(authority.issue("server")), allows_plain=False,
            handshake_timeout_s=HANDSHAKE_S, watch=None,
        )  # fmt: skip
        server = RemotingServer(echo, small_limits(), tls)
        address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        async with client(**trusting(authority)) as good:
            await echoed(good, address)
            tls.handshake_timeout_s = 0.5
            server.budget.limits = small_limits(partial_frame_timeout_ms=500)
            opened = await half_open(address)
            for reader, _ in opened:
                await until_closed(reader)
            await echoed(good, address)
            for _, writer in opened:
                await bye(writer)
            await until(lambda: server.budget.connections == 1)
        await server.stop(1_000)

    run(scenario())


def test_a_stop_ends_handshakes(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        context = context_for(authority.issue("server"))
        async with serving(context, handshake_s=60) as (server, address):
            reader, writer = await raw(address)
            writer.write(b"\x16\x03\x01\x02\x00\x01")
            other, silent = await raw(address)
            await until(lambda: server.budget.connections == 2)
            await server.stop(200)
            assert await until_closed(reader) == b""
            assert await until_closed(other) == b""
            await bye(writer)
            await bye(silent)
        assert server.budget.connections == 0

    run(scenario())


def test_a_peer_that_resets_before_its_first_byte(run: Run, authority: Authority) -> None:
    async def scenario() -> None:
        context = context_for(authority.issue("server"))
        async with (
            serving(context) as (server, address),
            client(**trusting(authority)) as good,
        ):
            for _ in range(20):
                host, _, port = address.rpartition(":")
                with socket.create_connection((host, int(port))) as one:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            await echoed(good, address)
            await until(lambda: server.budget.connections == 1)

    run(scenario())


def test_a_new_certificate_is_taken_up(
    run: Run, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.issue("server")

    def spoil_key() -> None:
        Path(files.key).write_text("no key")

    def remove_certificate() -> None:
        Path(files.certificate).unlink()

    async def serial(address: str) -> str:
        async with client(**trusting(authority)) as one:
            await echoed(one, address)
            connection = one.connection_to(address)
            assert connection is not None
            assert connection._transport is not None
            shown = connection._transport.get_extra_info("ssl_object").getpeercert()
            return str(shown["serialNumber"])

    async def scenario() -> None:
        tls = server_tls(*files, NAMES)
        watch = tls.watch
        assert watch is not None
        server = RemotingServer(echo, small_limits(), tls)
        address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        first = await serial(address)
        assert not await watch.check()
        authority.issue("server")
        assert await watch.check()
        second = await serial(address)
        assert second != first
        spoil_key()
        assert not await watch.check()
        assert await serial(address) == second
        remove_certificate()
        assert not await watch.check()
        assert await serial(address) == second
        await server.stop(100)

    run(scenario())
    assert caplog.text.count("the certificate was not reloaded") == 2


def test_files_that_cannot_be_used(tmp_path: Path, authority: Authority) -> None:
    files, other = authority.issue("one"), authority.issue("two")
    locked = authority.issue("locked", password="the password")
    server_context(*locked, NAMES, key_password="the password")
    for certificate, key, option in (
        (files.certificate, other.key, "certOption"),
        (files.certificate, str(tmp_path / "absent"), "certOption"),
        (files.key, files.key, "certOption"),
        (locked.certificate, locked.key, "certOption"),
        ("", files.key, "certOption"),
        (files.certificate, "", "keyOption"),
    ):
        with pytest.raises(InvalidConfig, match=option):
            server_context(certificate, key, NAMES)
    with pytest.raises(InvalidConfig, match="caOption"):
        server_context(*files, NAMES, client_auth=ClientAuth.REQUIRE)
    with pytest.raises(InvalidConfig, match="caOption"):
        client_context(NAMES, authority=str(tmp_path / "absent"))
