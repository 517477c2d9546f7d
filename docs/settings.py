"""Generate the table in settings.md from the declared settings: `python docs/settings.py`.

A test checks that the table is up to date.
"""

import typing
from pathlib import Path
from typing import Literal

from memes.api import USUAL, run
from memes.options.command_line import run_options
from memes.parameters import Parameter, parameters

PAGE = Path(__file__).with_name("settings.md")
BEGIN, END = "<!-- settings: written by docs/settings.py -->\n\n", "\n<!-- end of settings -->"


def table() -> str:
    """Return a Markdown table with the flag, Python name, default and meaning of each run setting."""
    own, of_observers = run_options().values()
    python = dict.fromkeys(own, "") | {name: f"`run({name}=…)`" for name in parameters(run)}
    for kind in USUAL:
        prefix = f"{kind.prefix}_"
        python |= {f"{prefix}{name}": f"`{kind.__name__}({name}=…)`" for name in parameters(kind())}
    # Settings with other names in Python.
    python |= {"seeds": "`run(seeds=range(n))`", "quiet": "`run(progress=False)`"}
    python |= {"workers": "`parallelize(task, workers(…))`", "worker_rows": "`parallelize(…, block=…)`"}
    python |= {"simulator_timeout": "`workers(…, timeout=…)`"}
    rows = [
        f"| `{_flag(name, option)}` | {python[name]} | {_default(option)} | {_text(option)} |"
        for name, option in (own | of_observers).items()
    ]
    return "\n".join(["| flag | in Python | default | meaning |", "|---|---|---|---|", *rows, ""])


def _flag(name: str, option: Parameter) -> str:
    return f"--{'no-' * (option.default is True)}{name.replace('_', '-')}"


def _default(option: Parameter) -> str:
    if isinstance(option.default, bool) or option.default in (None, ()):
        return ""
    return f"{option.default}"


def _text(option: Parameter) -> str:
    text = " ".join((option.help or "").split())
    choices = typing.get_args(option.hint) if typing.get_origin(option.hint) is Literal else ()
    return f"{text} Choices: {', '.join(choices)}." if choices else text


def written(page: str) -> str:
    """Return the text of the page, with its table replaced by the current table."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
