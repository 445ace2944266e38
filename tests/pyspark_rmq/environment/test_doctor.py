"""`rmq doctor`: each check with its fix, on real servers where there are any."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from broker_core.cli.main import main
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.environment import doctor


def test_a_machine_and_a_broker_without_problems(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    code = main(["doctor", "-n", broker.name_server])
    lines = capsys.readouterr().out.splitlines()
    by_check = {line[6:18].strip(): line for line in lines[:-1] if line[:4].strip()}
    assert by_check["broker"] == f"ok    broker        broker-a:0 at {broker.address}"
    assert by_check["name server"] == f"ok    name server   {broker.name_server}, 1 broker name"
    assert by_check["Spark runs"] == (
        f"ok    Spark runs    {sys.executable}, because PYSPARK_PYTHON={sys.executable}"
    )
    failed = [line for line in lines if line.startswith("FAIL")]
    # Java and the compiled code may be missing where the fast tests run.
    assert all(line.split()[1] in ("Java", "native") for line in failed)
    assert code == (1 if failed else 0)
    assert lines[-1] == f"{len(failed)} problem{'' if len(failed) == 1 else 's'} found"


def test_servers_that_are_not_what_they_should_be(broker: EmbeddedBroker) -> None:
    nowhere, not_one = doctor.server_findings(f"127.0.0.1:1;{broker.address}", {})
    assert nowhere == (
        "name server",
        "127.0.0.1:1",
        "start a name server there, or give the right address",
        "none of the name servers 127.0.0.1:1 answered: 127.0.0.1:1 could not be reached:"
        " Connection refused",
    )
    assert not_one.reason == f"{broker.address} is a broker, not a name server"
    assert not_one.fix.startswith("give the address of the name server, ")
    assert not_one.fix.endswith("\nSee docs/errors.md#broker-given-as-name-server")
    [right, _] = doctor.server_findings(broker.name_server, {})
    assert right == ("name server", f"{broker.name_server}, 1 broker name", "", "")
    [with_scheme] = doctor.server_findings("rmq://127.0.0.1:1", {})
    assert "leave out rmq://" in with_scheme.fix


def test_a_name_server_without_tls(broker: EmbeddedBroker) -> None:
    [found] = doctor.server_findings(broker.name_server, {"tls_enable": True})
    assert found.fix == (
        "compare --tls, --tls-ca and --tls-cert with the TLS settings of the server\n"
        "See docs/errors.md#tls-mismatch"
    )


def test_an_advertised_address_that_is_not_reached() -> None:
    assert doctor.broker_finding("broker-a:0", "127.0.0.1:1") == (
        "broker",
        "broker-a:0 at 127.0.0.1:1",
        "set brokerIP1 of the broker to an address that this machine reaches, or give the option"
        " rmq.broker.address.rewrite=127.0.0.1:1=HOST:PORT here",
        "Connection refused",
    )


def test_another_python_than_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python3")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    [found] = doctor.interpreter_findings()
    assert found.reason == (
        "Spark runs /nowhere/python3 as Python, because PYSPARK_PYTHON=/nowhere/python3, and there"
        " is no such program"
    )
    assert found.fix.startswith(f"set PYSPARK_PYTHON={sys.executable} and PYSPARK_DRIVER_PYTHON")


def test_the_reason_comes_before_the_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-n", "127.0.0.1:1"]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    place = lines.index("FAIL  name server   127.0.0.1:1")
    assert lines[place + 1].startswith("none of the name servers 127.0.0.1:1 answered")
    assert lines[place + 2] == "fix: start a name server there, or give the right address"


@pytest.mark.parametrize(
    ("finding", "fix"),
    [
        (doctor.python_finding((3, 9)), "use Python 3.10 or newer"),
        (doctor.python_finding((3, 13)), ""),
        (doctor.java_finding(("java", 11)), "install Java 17 or newer"),
        (doctor.java_finding(("java", None)), "install Java 17 or newer"),
        (doctor.java_finding(("java", 21)), ""),
        (doctor.native_finding("python"), "install a wheel for this platform"),
        (doctor.native_finding("native"), ""),
    ],
)
def test_fixes(finding: Any, fix: str) -> None:
    assert finding.fix.startswith(fix)
    assert bool(finding.fix) == bool(fix)


@pytest.mark.parametrize(
    ("versions", "fixes"),
    [
        ({"pyspark": "4.1.0", "pyarrow": "18.0.0"}, ["", ""]),
        ({"pyspark-client": "4.0.1", "pyarrow": "11.0.0"}, ["", ""]),
        ({"pyspark": "3.5.1"}, ["pip install 'pyspark>=4.0,<4.4'", "pip install 'pyarrow>=11'"]),
        ({"pyarrow": "10.0.1"}, ["pip install 'pyspark>=4.0,<4.4'", "pip install 'pyarrow>=11'"]),
    ],
)
def test_versions(versions: dict[str, str], fixes: list[str]) -> None:
    assert [finding.fix for finding in doctor.distribution_findings(versions.get)] == fixes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no Java", None),
    ],
)
def test_versions_of_java(text: str, number: int | None) -> None:
    assert doctor.parse_java_version(text) == number


def test_the_oldest_arrow_is_that_of_the_installed_spark() -> None:
    wanted = ["py4j<0.10.9.10,>=0.10.9.7", 'pyarrow>=18.0.0; extra == "sql"']
    assert doctor.arrow_min(wanted) == "18.0.0"
    assert doctor.arrow_min([]) == "11"
    [_, arrow] = doctor.distribution_findings({"pyarrow": "15.0.0"}.get, "18.0.0")
    assert arrow[:3] == ("Arrow", "15.0.0", "pip install 'pyarrow>=18.0.0'")
