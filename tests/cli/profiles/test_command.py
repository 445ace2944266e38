"""`rmq profile`, and the cluster that other commands find through a profile."""

from __future__ import annotations

import argparse
import io
import json
import stat
from pathlib import Path

import pytest

from broker_core.cli.cluster_options import GivenCluster, add_cluster_options, given_cluster
from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NAMESRV_ADDR", "RMQ_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RMQ_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def given(*words: str, or_local: bool = True) -> GivenCluster:
    parser = argparse.ArgumentParser()
    add_cluster_options(parser)
    return given_cluster(parser.parse_args(words), or_local=or_local)


def test_a_profile_is_written_listed_shown_and_deleted(directory: Path, capsys: Capture) -> None:
    assert main(["profile", "list"]) == 0
    assert capsys.readouterr().out.startswith("(none)\n")
    assert main(["profile", "set", "prod", "-n", "a:1;b:2", "--tls", "--tls-ca", "ca.pem"]) == 0
    file = directory / "profiles.conf"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert capsys.readouterr().out == (f"profile prod written to {file}; use it: --profile prod\n")
    assert main(["profile", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"profile": "prod", "nameServers": "a:1;b:2", "account": "", "tls": True, "used": False}
    ]
    assert main(["profile", "show", "prod", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "profile": "prod",
        "namesrv": "a:1;b:2",
        "tls": True,
        "tls-ca": str(Path("ca.pem").absolute()),
    }
    # There is no terminal to ask on.
    assert main(["profile", "delete", "prod"]) == 2
    assert "delete profile prod? Give --yes" in capsys.readouterr().err
    assert main(["profile", "delete", "prod", "--yes"]) == 0
    assert main(["profile", "show", "prod"]) == 2
    assert f"no profile 'prod' in {file}; there are none" in capsys.readouterr().err


def test_a_secret_is_kept_and_never_printed(
    directory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("canary-secret\n"))
    words = ["profile", "set", "prod", "-n", "a:1", "--access-key", "shop", "--ask-secret"]
    assert main(words) == 0
    assert main(["profile", "show", "prod"]) == 0
    assert main(["profile", "list"]) == 0
    shown = capsys.readouterr()
    assert "canary" not in shown.out + shown.err
    assert "secret-key  (not shown)" in shown.out
    cluster = given("--profile", "prod")
    assert cluster.security == {"access_key": "shop", "secret_key": "canary-secret"}
    assert "canary" not in repr(cluster)
    (directory / "profiles.conf").chmod(0o644)
    assert main(["lag", "--profile", "prod"]) == 2
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["set"], "give the name: rmq profile set NAME"),
        (["set", "a"], "nothing to set"),
        (["set", "a b", "-n", "a:1"], "'a b' is not a name of a profile"),
        (["set", "a", "-n", "a:1", "--access-key", "k"], "access-key needs secret-key-file"),
        (["set", "a", "-n", "a:1", "--tls-ca", "f"], "tls-ca needs tls"),
        (["list", "a"], "rmq profile show a"),
        (["list", "--tls"], "--tls is for set"),
        (["show", "a", "-n", "a:1"], "--namesrv is for set"),
        (["show", "a"], "no profile 'a'"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], reason: str, capsys: Capture) -> None:
    assert main(["profile", *words]) == 2
    assert reason in capsys.readouterr().err


def put(directory: Path, text: str) -> None:
    directory.mkdir(exist_ok=True)
    file = directory / "profiles.conf"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)


def test_which_cluster(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert given() == (("127.0.0.1:9876",), {})
    assert given(or_local=False) == ((), {})
    secret = directory / "key"
    put(
        directory,
        "[default]\nnamesrv = d:1\ntls = true\n"
        "[prod]\nnamesrv = p:1\naccess-key = shop\nsecret-key = canary-secret\n"
        "[file]\nnamesrv = f:1\naccess-key = shop\nsecret-key-file = key\n",
    )
    secret.write_text("canary-of-file\n", encoding="utf-8")
    secret.chmod(0o600)
    tls = {"tls_enable": True, "tls_ca": "", "tls_cert": "", "tls_key": ""}
    account = {"access_key": "shop", "secret_key": "canary-secret"}
    assert given() == given(or_local=False) == (("d:1",), tls)
    # The settings of one cluster are not used for another one that only has an address.
    assert given("-n", "x:1") == (("x:1",), {})
    assert given("--profile", "prod") == (("p:1",), account)
    assert given("--profile", "file").security["secret_key"] == "canary-of-file"
    assert given("--profile", "prod", "-n", "x:1") == (("x:1",), account)
    assert given("--profile", "prod", "--tls") == (("p:1",), account | tls)
    other = ("--access-key", "me", "--secret-key-file", str(secret))
    assert given("--profile", "prod", *other).security == {
        "access_key": "me",
        "secret_key": "canary-of-file",
    }
    monkeypatch.setenv("NAMESRV_ADDR", "e:1")
    assert given() == (("e:1",), {})
    assert given("--profile", "prod") == (("p:1",), account)
    monkeypatch.setenv("RMQ_PROFILE", "prod")
    assert given() == (("p:1",), account)
    assert given("--profile", "default").name_servers == ("d:1",)


def test_an_unknown_profile_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(directory, "[prod]\nnamesrv = p:1\n")
    with pytest.raises(CommandFailed, match=r"^--profile prd: no such profile .*; profiles are p"):
        given("--profile", "prd")
    with pytest.raises(CommandFailed, match=r"^--profile default: no such profile"):
        given("--profile", "default")
    monkeypatch.setenv("RMQ_PROFILE", "prd")
    with pytest.raises(CommandFailed, match=r"^RMQ_PROFILE=prd: no such profile"):
        given()
