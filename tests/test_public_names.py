"""The public names of the package: each exists, is documented to type checkers and loads lazily."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import broker_core
from tools.write_public_stub import STUB, stub_text

PROJECT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", broker_core.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(broker_core, name) is not None
    assert name in dir(broker_core)


def test_the_stub_for_type_checkers_is_up_to_date() -> None:
    assert STUB.read_text(encoding="utf-8") == stub_text(broker_core._PUBLIC), (
        "run python tools/write_public_stub.py"
    )


def test_the_names_of_a_subject_are_in_order() -> None:
    lines = (PROJECT / "broker_core/__init__.py").read_text(encoding="utf-8").splitlines()
    table = lines[lines.index("_PUBLIC = {") + 1 : lines.index("}")]
    subject: list[str] = []
    for line in [*table, "    #"]:
        if line.startswith("    #"):
            assert subject == sorted(subject)
            subject = []
        else:
            subject.append(line.split('"')[1])


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = broker_core.Nothing


def test_importing_the_package_imports_none_of_its_rooms() -> None:
    program = (
        "import sys, broker_core; print([m for m in sys.modules if m.startswith('broker_core.')]);"
        " broker_core.SyncAdmin; print('broker_core.store' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[]", "False"]


def test_the_codec_in_use_has_a_name() -> None:
    assert broker_core.codec_backend() in ("native", "python")
