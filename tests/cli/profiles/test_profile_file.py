"""The file of profiles: what it may contain, who may read it, and how it is changed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from broker_core.cli.profiles.profile_file import (
    Profile,
    ProfileFile,
    config_directory,
    parse_profiles,
)
from broker_core.errors import InvalidConfig

TEXT = """\
# clusters of the shop
[default]
namesrv = 127.0.0.1:9876

[prod.eu]
namesrv = a:9876;b:9876
access-key = shop
secret-key = canary-of-prod
tls = true
tls-ca = ca.pem
"""


def written(path: Path, text: str = TEXT, mode: int = 0o600) -> ProfileFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return ProfileFile(path)


def test_profiles_are_read(tmp_path: Path) -> None:
    found = written(tmp_path / "profiles.conf").read()
    assert list(found) == ["default", "prod.eu"]
    assert found["default"] == Profile(namesrv="127.0.0.1:9876")
    prod = found["prod.eu"]
    assert (prod.namesrv, prod.access_key, prod.secret_key) == (
        "a:9876;b:9876",
        "shop",
        "canary-of-prod",
    )
    assert prod.tls
    # Relative to the file that names it.
    assert prod.tls_ca == str(tmp_path / "ca.pem")


def test_a_secret_is_not_in_the_repr() -> None:
    assert "canary" not in repr(parse_profiles(TEXT, Path("/x/profiles.conf")))


def test_a_file_that_is_not_there_has_no_profiles(tmp_path: Path) -> None:
    assert ProfileFile(tmp_path / "none").read() == {}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o602])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = written(tmp_path / "profiles.conf", mode=mode)
    with pytest.raises(InvalidConfig, match=r"chmod 600") as refused:
        file.read()
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("namesrv = a:1\n", r"line 1: 'namesrv' is before the first \[NAME\]"),
        ("[a]\nnamesrv\n", r"line 2: 'namesrv' is not KEY = VALUE"),
        ("[a]\nnameserver = x:1\n", r"line 2: unknown key 'nameserver'; did you mean namesrv\?"),
        ("[a]\ncolour = x\n", r"unknown key 'colour'; keys are namesrv, access-key"),
        ("[a]\n[a]\n", r"line 2: \[a\] is there twice"),
        ("[a]\ntls = true\ntls = true\n", r"line 3: tls is there twice"),
        ("[a b]\n", r"line 1: 'a b' is not a name of a profile"),
        ("[a]\nnamesrv = nowhere\n", r"\[a\] namesrv: 'nowhere' is not HOST:PORT"),
        ("[a]\ntls = perhaps\n", r"\[a\] tls: 'perhaps' is neither true nor false"),
        ("[a]\naccess-key = k\n", r"\[a\] access-key needs secret-key-file or secret-key"),
        ("[a]\nsecret-key = k\n", r"\[a\] secret-key needs access-key"),
        (
            "[a]\naccess-key = k\nsecret-key = x\nsecret-key-file = y\n",
            r"\[a\] give secret-key-file or secret-key, not both",
        ),
        ("[a]\ntls-ca = x\n", r"\[a\] tls-ca needs tls = true"),
        ("[a]\ntls = true\ntls-cert = x\n", r"\[a\] tls-cert and tls-key go together"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason) as refused:
        parse_profiles(text, Path("/x/profiles.conf"))
    assert "/x/profiles.conf" in str(refused.value)


@pytest.mark.parametrize(
    "text", ["[a]\nsecret-key: canary\n", "secret-key = canary\n", "[a]\nsecret_key=canary\n"]
)
def test_a_line_with_a_secret_is_never_shown(text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_profiles(text, Path("/x/profiles.conf"))
    assert "canary" not in str(refused.value)


def test_a_change_keeps_the_rest_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rmq" / "profiles.conf"
    file = ProfileFile(path)
    file.put("one", Profile(namesrv="a:1", access_key="k", secret_key="canary"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    written(path, "# mine\n[zero]\n# of zero\nnamesrv = z:1\n\n" + path.read_text())
    file.put("two", Profile(namesrv="b:1", tls=True))
    file.put("one", Profile(namesrv="c:1"))
    assert path.read_text() == (
        "# mine\n[zero]\n# of zero\nnamesrv = z:1\n\n[one]\nnamesrv = c:1\n\n"
        "[two]\nnamesrv = b:1\ntls = true\n"
    )
    assert file.remove("one")
    assert not file.remove("one")
    assert list(file.read()) == ["zero", "two"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["profiles.conf"]


def test_a_damaged_file_is_not_changed(tmp_path: Path) -> None:
    file = written(tmp_path / "profiles.conf", "[a]\nnonsense\n")
    with pytest.raises(InvalidConfig):
        file.put("b", Profile(namesrv="a:1"))
    assert (tmp_path / "profiles.conf").read_text() == "[a]\nnonsense\n"


def test_the_directory() -> None:
    assert config_directory({"RMQ_CONFIG_DIR": "/r", "XDG_CONFIG_HOME": "/x"}) == Path("/r")
    assert config_directory({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/rmq")
    # The specification has relative paths ignored.
    assert config_directory({"XDG_CONFIG_HOME": "x", "HOME": "/h"}) == Path("/h/.config/rmq")
    assert config_directory({"HOME": "/h"}) == Path("/h/.config/rmq")
