"""`rmq completion SHELL`: a script that completes commands and options.

The script contains all words: completing one does not start Python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from broker_core.cli.admin.registry import ADMIN_COMMANDS
from broker_core.cli.admin.session import add_session_options
from broker_core.cli.command_parser import CommandParser
from broker_core.cli.exit_codes import DONE

EXAMPLES: Final = """\
  source <(rmq completion bash)                in ~/.bashrc
  source <(rmq completion zsh)                 in ~/.zshrc, after compinit
  rmq completion fish > ~/.config/fish/completions/rmq.fish"""

ACTIONS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
_rmq() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" path="" i
    for ((i = 1; i < COMP_CWORD && i < 4; i++)); do
        [[ "${{COMP_WORDS[i]}}" == -* ]] && break
        path="$path ${{COMP_WORDS[i]}}"
    done
    local words=""
    while :; do
        case "$path" in
{cases}
        esac
        [[ -n "$words" || -z "$path" ]] && break
        path="${{path% *}}"
    done
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _rmq rmq
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=ACTIONS, metavar="SHELL", help=", ".join(ACTIONS))


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(script(options.shell, words_by_path()))
    return DONE


def script(shell: str, words: Mapping[str, list[str]]) -> str:
    """The script of one shell for these words; see `words_by_path`."""
    if shell == "fish":
        return "".join(_fish_lines(words))
    cases = "\n".join(
        f'            "{path and " " + path}") words="{" ".join(found)}" ;;'
        for path, found in words.items()
    )
    return (_ZSH if shell == "zsh" else "") + _BASH.format(cases=cases)


def words_by_path() -> dict[str, list[str]]:
    """`admin topic list` and the like -> the words that may follow; empty for the first word."""
    from broker_core.cli.main import COMMANDS

    found: dict[str, list[str]] = {"": [*COMMANDS, "--help", "--version"]}
    for name, command in COMMANDS.items():
        if name == "admin":
            found.update(_admin_words())
            continue
        module = import_module(command.module)
        parser = CommandParser(f"rmq {name}", command.summary, module.EXAMPLES)
        module.add_arguments(parser)
        # The first words, if the command has any.
        found[name] = [*getattr(module, "ACTIONS", ()), *_options(parser)]
    return found


def _admin_words() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"admin": []}
    for name, entry in ADMIN_COMMANDS.items():
        subject, _, rest = name.partition(" ")
        if subject not in found["admin"]:
            found["admin"].append(subject)
        if rest:
            found.setdefault(f"admin {subject}", []).append(rest)
        verb = entry.load()
        parser = CommandParser(f"rmq admin {name}", entry.summary, verb.examples)
        verb.add_arguments(parser)
        if verb.question is not None:
            parser.add_argument("-y", "--yes", action="store_true")
        add_session_options(parser)
        found[f"admin {name}"] = _options(parser)
    for path in found:
        if "--help" not in found[path]:
            found[path].append("--help")
    return found


def _options(parser: CommandParser) -> list[str]:
    """Its long options; those that are hidden from the help are left out."""
    usage = parser.format_help()
    found: list[str] = []
    for word in usage.replace(",", " ").replace("[", " ").replace("]", " ").split():
        if word.startswith("--") and word not in found and word.lstrip("-"):
            found.append(word.partition("=")[0].rstrip(".;:)"))
    return sorted(set(found))


def _fish_lines(words: Mapping[str, list[str]]) -> Iterator[str]:
    yield "complete -c rmq -f\n"
    for path, found in words.items():
        seen = [f"__fish_seen_subcommand_from {word}" for word in path.split()]
        test = "; and ".join(seen) or "__fish_use_subcommand"
        for word in found:
            option = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            yield f"complete -c rmq -n '{test}' {option}\n"
