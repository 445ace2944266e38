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
from broker_core.cli.live import explain

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
# Files are offered where no words are: an option may take one.
_FISH: Final = """\
function __rmq_path
    set -l path
    for word in (commandline -opc)[2..-1]
        string match -q -- '-*' $word; and break
        set -a path $word
    end
    echo "$path"
end
function __rmq_at
    test (__rmq_path) = "$argv[1]"
end
function __rmq_below
    if test -z "$argv[1]"
        test -z (__rmq_path)
    else
        string match -q -- "$argv[1] *" (__rmq_path)" "
    end
end
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
        actions = explain.names() if module is explain else getattr(module, "ACTIONS", ())
        found[name] = [*actions, *_options(parser)]
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
    yield _FISH
    for path, found in words.items():
        plain = " ".join(word for word in found if not word.startswith("--"))
        if plain:
            yield f"complete -c rmq -n '__rmq_at \"{path}\"' -f -a '{plain}'\n"
        for word in found:
            if word.startswith("--"):
                yield f"complete -c rmq -n '__rmq_below \"{path}\"' -l {word[2:]}\n"
