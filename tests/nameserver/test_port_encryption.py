"""TLS options of a name server."""

from __future__ import annotations

import pytest

from broker_core.errors import InvalidConfig
from broker_core.nameserver.port_encryption import TLS_MODES, port_encryption


def test_plain_text_needs_no_file() -> None:
    assert "disabled" in TLS_MODES
    assert port_encryption("disabled") is None


@pytest.mark.parametrize(
    ("place", "option"), [(0, "--tls-cert"), (1, "--tls-key"), (2, "--tls-client-ca")]
)
def test_a_file_without_a_mode_is_refused(place: int, option: str) -> None:
    files = ["", "", ""]
    files[place] = "some.pem"
    with pytest.raises(InvalidConfig, match="needs --tls-mode") as refusal:
        port_encryption("disabled", *files)
    assert refusal.value.key == option


@pytest.mark.parametrize("mode", [mode for mode in TLS_MODES if mode != "disabled"])
def test_a_mode_needs_its_files(mode: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        port_encryption(mode, "missing.pem", "missing.key")
    assert refusal.value.key.startswith("--tls-")
