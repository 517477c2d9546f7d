"""Generate the API reference, the page of commands, and the figure of the layers from the code."""

import contextlib
import inspect
import io
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import matplotlib
from matplotlib.figure import Figure

import memes
from memes.commands.main import COMMANDS, main
from memes.parameters import recorded

matplotlib.use("agg")
ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))
from test_layers import ORDER, imports, layer  # noqa: E402

# The modules of the reference, in the order of the table of contents. The page of `memes` comes first.
MODULES = (
    *(
        "tasks",
        "presets",
        "emitters",
        "objectives",
        "resets",
        "selectors",
        "strategies",
        "strategies.noise",
    ),
    *(
        "cells",
        "archive",
        "judges",
        "history",
        "metrics",
        "control",
        "control.policies",
        "physics",
        "plot",
    ),
)


def make(folder: Path) -> None:
    """Write all generated pages to a folder."""
    (folder / "reference").mkdir(parents=True, exist_ok=True)
    _write(folder / "commands.md", commands())
    modules = {"memes": memes} | {f"memes.{name}": _module(name) for name in MODULES}
    for title, module in modules.items():
        _write(folder / "reference" / f"{title}.md", page(title, module, modules))
    layers().savefig(folder / "layers.svg", metadata={"Date": None})


def _module(name: str) -> ModuleType:
    module = memes
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _write(file: Path, text: str) -> None:
    if not file.exists() or file.read_text() != text:  # Sphinx does not rebuild unchanged files
        file.write_text(text)


def page(title: str, module: ModuleType, modules: dict[str, ModuleType]) -> str:
    """Return the reference page of a module: its docstring, then its functions and classes."""

    def home(item: object) -> str:
        """Return the title of the reference page that documents an object."""
        around = {t: m.__name__ for t, m in modules.items() if item.__module__.startswith(m.__name__)}
        return max(around, key=lambda title: len(around[title]))

    lines = [
        f"# `{title}`",
        "",
        "```{eval-rst}",
        f".. automodule:: {module.__name__}",
        "   :no-members:",
        "",
    ]
    if title == "memes.presets":
        lines += ["```", "", *algorithms(), "", "```{eval-rst}"]
    public = [name for name in sorted(dir(module)) if not name.startswith("_")]
    for name in sorted(
        {id(getattr(module, name)): name for name in public}.values()
    ):  # one name per object
        item = getattr(module, name)
        if callable(item) and str(item.__module__).startswith("memes") and home(item) == title:
            if inspect.isclass(item):  # type annotations name the defining module
                lines += [f".. autoclass:: {item.__module__}.{item.__qualname__}", "   :members:", ""]
            else:  # use the public name
                lines += [f".. autofunction:: {module.__name__}::{name}", ""]
    lines += ["```", ""]
    if title == "memes":
        lines += ["```{toctree}", *(other for other in modules if other != title), "```", ""]
    return "\n".join(lines)


def algorithms() -> list[str]:
    """Return the lines of a Markdown table with the name, description and call of each algorithm."""
    lines = ["| `--algorithm` | description | in Python |", "|---|---|---|"]
    plain: dict[type, memes.presets.Preset] = {}
    for name, preset in memes.PRESETS.items():
        first = plain.setdefault(type(preset.options), preset)
        changes = recorded(preset.options).items() - recorded(first.options).items()
        arguments = ", ".join(["task", *(f"{option}={value!r}" for option, value in sorted(changes))])
        lines += [f"| `{name}` | {preset.summary} | `presets.{first.build.__name__}({arguments})` |"]
    return lines


def commands() -> str:
    """Return a page with the `--help` text of every command."""
    lines = ["# Command line", ""]
    for name in COMMANDS:
        arguments = [name, "arm"] if name == "run" else [name]
        lines += [f"## memes {name}", "", "```text", _help([*arguments, "--help"]).rstrip(), "```", ""]
    return "\n".join(lines)


def _help(arguments: list[str]) -> str:
    printed = io.StringIO()
    os.environ["COLUMNS"] = "100"
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(arguments)
    return printed.getvalue()


def layers() -> Figure:
    """Draw the layers of the package in order, with arrows from each layer to the layers it imports."""
    arrows = Counter(
        (layer(module), layer(target))
        for module, _, target in imports()
        if layer(module) != layer(target) and not module.endswith("__")
    )
    figure = Figure(figsize=(10.5, 3.6))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.7, len(ORDER) - 0.3), ylim=(-2.4, 2.9))
    axes.axis("off")
    place = {name: i for i, name in enumerate(ORDER)}
    for (source, target), count in arrows.items():
        bend = -0.28 if place[source] % 2 else 0.28
        axes.annotate(
            "",
            (place[target], 0.25 if bend > 0 else -0.25),
            (place[source], 0.25 if bend > 0 else -0.25),
            arrowprops={
                "arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "lw": 0.5 + count**0.5 / 4,
                "color": f"C{place[source] % 10}", "alpha": 0.6,
            },
        )  # fmt: skip
    for name, i in place.items():
        axes.text(
            i, 0, name, ha="center", va="center", size=9, bbox={"boxstyle": "round", "fc": "white"}
        )
    return figure
