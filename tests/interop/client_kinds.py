"""The clients of the compatibility page by name, and how to start a process of each."""

from __future__ import annotations

from tests.interop.driven_client import DrivenClient
from tests.interop.go_client import GO_VERSIONS, GoClient
from tests.interop.java_client import BINARY_HEADERS, CLIENT_VERSIONS, JavaClient
from tests.interop.node_client import NODE_VERSIONS, NodeClient
from tests.interop.our_client import OUR_CLIENT, OurClient

JAVA_CLIENTS = tuple(f"Java {version}" for version in CLIENT_VERSIONS)
GO_CLIENTS = tuple(f"Go {version}" for version in GO_VERSIONS)
NODE_CLIENTS = tuple(f"Node {version}" for version in NODE_VERSIONS)


def language_of(client: str) -> str:
    return OurClient.language if client == OUR_CLIENT else client.split(" ")[0]


def start_client(client: str, headers: str) -> DrivenClient:
    """A process of this client; raises `PeerUnavailable` if it cannot be had."""
    if client == OUR_CLIENT:
        return OurClient()
    version = client.split(" ")[1]
    if client in GO_CLIENTS:
        return GoClient(version)
    if client in NODE_CLIENTS:
        return NodeClient(version)
    return JavaClient(version, BINARY_HEADERS if headers == "ROCKETMQ" else ())
