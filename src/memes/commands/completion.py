"""The command `memes completion`."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Literal

from memes.commands.check import CheckOptions
from memes.commands.main import COMMANDS
from memes.options.command_line import run_options
from memes.options.flags import SHORT, Options, options_of
from memes.options.workers import WorkerOptions
from memes.parameters import parameters
from memes.presets import PRESETS
from memes.tasks import TASKS

SCRIPT = """\
_memes() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
    if (( COMP_CWORD == 1 )); then
        words="{commands}"
    else
        case ${{COMP_WORDS[1]}} in
{options}
        esac
        case $before in
{values}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _memes memes"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def completion(shell: Literal["bash", "zsh"]) -> None:
    """Print a shell script that completes commands, tasks, algorithms and options.

    Args:
        shell: The shell for which the script is written.
    """
    options = {name: _options_of(name) for name in COMMANDS}
    choices = {
        name: list(map(str, typing.get_args(option.hint)))
        for command in options.values()
        for name, option in command.items()
        if typing.get_origin(option.hint) is Literal
    }
    choices |= {"algorithm": list(PRESETS), "task": list(TASKS), "tasks": list(TASKS)}
    cases = {
        name: [*(TASKS if name in ("run", "check") else ()), *map(_flag, own), *_letters(own), "--help"]
        for name, own in options.items()
    }
    script = SCRIPT.format(
        commands=" ".join([*COMMANDS, "help", "version"]),
        options="\n".join(_cases(cases)),
        values="\n".join(_cases({_flag(name): values for name, values in choices.items()})),
    )
    print(ZSH * (shell == "zsh") + script)


def _options_of(command: str) -> Options:
    """Return all options of a command, including the options of all library tasks and algorithms."""
    of_tasks = [options_of(make) for make in TASKS.values()]
    if command == "run":
        groups = [*run_options().values(), *of_tasks]
        groups += [options_of(preset.build) for preset in PRESETS.values()]
    elif command == "check":
        groups = [options_of(CheckOptions()), options_of(WorkerOptions()), *of_tasks]
    else:
        groups = [parameters(getattr(import_module(f"memes.commands.{command}"), command))]
    return {name: option for group in groups for name, option in group.items()}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _letters(options: Options) -> list[str]:
    return [f"-{letter}" for letter, name in SHORT.items() if name in options]


def _cases(cases: dict[str, list[str]]) -> Iterator[str]:
    for pattern, words in cases.items():
        yield f'            {pattern}) words="{" ".join(words)}" ;;'
