"""Fetches and builds every peer that a run needs: `python -m tests.interop.fetched_peers`.

On a fresh machine that takes minutes, which no test should be charged with. What cannot be had is
said on one line each; the tests that need it skip themselves with the same reason. With
`RMQ_REQUIRE_PEERS=1` that is an error, here and there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from tests.interop.go_client import GO_VERSIONS, go_driver
from tests.interop.grpc_client import (
    GRPC_CLIENT_VERSION,
    PROXY_VERSION,
    grpc_class_path,
    proxy_jars,
)
from tests.interop.java_broker import SERVER_VERSIONS, server_class_path
from tests.interop.java_client import CLIENT_VERSIONS, client_class_path
from tests.interop.java_store import VERSIONS as STORE_VERSIONS
from tests.interop.java_store import JavaStore
from tests.interop.maven_artifacts import PeerUnavailable, resolved_jars
from tests.interop.node_client import NODE_VERSIONS, node_modules
from tests.interop.peer_releases import PROTOBUF_VERSION, releases
from tests.interop.spark_avro import SPARK_AVRO_VERSION, spark_avro_jar
from tests.required_peers import REQUIRE_PEERS, peers_are_required


def _store(version: str) -> None:
    reason = JavaStore(version).available()
    if reason is not None:
        raise PeerUnavailable(reason)


def _peers() -> Iterator[tuple[str, Callable[[], object]]]:
    coordinates = [f"com.google.protobuf:protobuf-java-util:{PROTOBUF_VERSION}"]
    name = f"protobuf-java-util-{PROTOBUF_VERSION}"
    yield f"Protobuf for Java {PROTOBUF_VERSION}", partial(resolved_jars, name, coordinates)
    yield f"spark-avro {SPARK_AVRO_VERSION}", spark_avro_jar
    # All of them: the source and the sink are tried on each in every run.
    for version in SERVER_VERSIONS:
        yield f"Apache broker {version}", partial(server_class_path, version)
    for version in CLIENT_VERSIONS:
        yield f"Java client {version}", partial(client_class_path, version)
    yield f"Apache proxy {PROXY_VERSION}", proxy_jars
    yield f"Java gRPC client {GRPC_CLIENT_VERSION}", grpc_class_path
    for version in releases(STORE_VERSIONS):
        yield f"Apache store {version}", partial(_store, version)
    for version in GO_VERSIONS:
        yield f"Go client {version}", partial(go_driver, version)
    for version in NODE_VERSIONS:
        yield f"Node client {version}", partial(node_modules, version)


def main() -> int:
    """Fetch all of them; the exit code."""
    missing_count = 0
    for name, fetch in _peers():
        try:
            fetch()
        except PeerUnavailable as missing:
            missing_count += 1
            sys.stderr.write(f"{name} cannot be had: {missing}\n")
    if missing_count and peers_are_required():
        sys.stderr.write(f"{missing_count} missing, and {REQUIRE_PEERS} is set\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
