"""Completion, as a real bash does it."""

from __future__ import annotations

import subprocess

import pytest

from broker_core.cli.admin.registry import ADMIN_COMMANDS
from broker_core.cli.live.completion import script, words_by_path
from broker_core.cli.main import COMMANDS, main

WORDS = words_by_path()
ASK = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_rmq
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> set[str]:
    done = subprocess.run(
        ["bash", "-c", script("bash", WORDS) + ASK, "bash", "rmq", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "some"),
    [
        ([""], {"standalone", "admin", "--version"}),
        (["con"], {"consume"}),
        (["admin", "top"], {"topic"}),
        (["admin", "topic", ""], {"list", "delete", "--help"}),
        (["admin", "topic", "delete", "--y"], {"--yes"}),
        (["admin", "topic", "list", "-n", "h:1", "--j"], {"--json"}),
        (["consume", "--exit"], {"--exit-at-end"}),
        (["completion", "z"], {"zsh"}),
        (["dlq", "re"], {"replay"}),
        (["profile", "s"], {"set", "show"}),
        (["store", ""], {"check"}),
        (["explain", "kaf"], {"kafka-options"}),
    ],
)
def test_words(words: list[str], some: set[str]) -> None:
    found = completed(*words)
    assert some <= found
    assert all(word.startswith(words[-1]) for word in found)


def test_every_command_is_completed() -> None:
    assert WORDS[""][:-2] == [*COMMANDS]
    assert {f"admin {name}" for name in ADMIN_COMMANDS} <= WORDS.keys()
    assert all("--help" in words for words in WORDS.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell, WORDS)


def test_the_words_of_fish_come_right_after_those_that_lead_to_them() -> None:
    lines = script("fish", WORDS).splitlines()
    [topic] = [line for line in lines if "'__rmq_at \"admin topic\"'" in line]
    assert topic.endswith(f"-f -a '{' '.join(w for w in WORDS['admin topic'] if w[0] != '-')}'")
    assert "complete -c rmq -n '__rmq_below \"admin topic delete\"' -l yes" in lines
