"""Access files for tests, and the accounts that most of them use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from broker_core.access.credentials import Credentials
from broker_core.access.request_signing import RequestSigner
from broker_core.runtime.clock import Clock, SystemClock

READER: dict[str, Any] = {
    "accessKey": "reader-key",
    "secretKey": "canary-reader-secret",
    "topicPerms": ["T=SUB"],
    "groupPerms": ["G=SUB"],
}
WRITER: dict[str, Any] = {
    "accessKey": "writer-key",
    "secretKey": "canary-writer-secret",
    "topicPerms": ["T=PUB"],
    "groupPerms": ["S=PUB"],
}
BROKER: dict[str, Any] = {
    "accessKey": "broker-key",
    "secretKey": "canary-broker-secret",
    "broker": True,
}
ADMIN: dict[str, Any] = {
    "accessKey": "admin-key",
    "secretKey": "canary-admin-secret",
    "admin": True,
}
ACCOUNTS = (READER, WRITER, BROKER, ADMIN)


def write_access_file(path: Path, *accounts: dict[str, Any], **top: Any) -> Path:
    """A private file with these accounts."""
    path.touch(0o600)
    path.write_text(json.dumps({"accounts": list(accounts), **top}))
    path.chmod(0o600)
    return path


def write_secret_file(path: Path, account: dict[str, Any]) -> Path:
    """A private file with the secret of an account."""
    path.touch(0o600)
    path.write_text(account["secretKey"] + "\n")
    path.chmod(0o600)
    return path


def credentials(account: dict[str, Any]) -> Credentials:
    """What a client of this account signs with."""
    return Credentials(account["accessKey"], account["secretKey"])


def signer(account: dict[str, Any], clock: Clock | None = None) -> RequestSigner:
    """What signs the requests of this account."""
    return RequestSigner(credentials(account), clock or SystemClock())
