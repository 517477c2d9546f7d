"""The snippets and commands of README.md and docs/ run as printed, on smaller tasks."""

import functools
import inspect
import json
import pkgutil
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import memes
import process_memory
from memes import api
from memes.analysis import end_of_run
from memes.commands import doctor, plot, reevaluate, replay, view  # noqa: F401  (before they are patched)
from memes.commands.check import CheckOptions
from memes.commands.main import COMMANDS, main
from memes.options import command_line
from memes.options.flags import options_of
from memes.parameters import parameters
from memes.reproduce import experiments
from memes.tasks import FAMILIES
from memes.view import pictures, video_formats

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(
        document
        for folder in ("", "howto", "tutorials", "lab")
        for document in sorted((ROOT / "docs" / folder).glob("*.md"))
    ),
]
LINKED = [
    *DOCUMENTS,
    *(ROOT / name for name in ("CHANGELOG.md", "results/README.md", "benchmarks/README.md")),
]
WITHOUT_RESULTS = not (ROOT / "results").exists()  # a source distribution
if WITHOUT_RESULTS:
    LINKED.remove(ROOT / "results/README.md")


def named(document):
    return str(document.relative_to(ROOT).with_suffix(""))


each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=named)

PROGRAMS = ("memes", "python", "python3", "pip", "bash")
PLACEHOLDERS = {"TASK": "arm", "NAME": "me", "RUN...": "RUN"}  # The folder RUN exists.

# Commands that the test does not run, and the reasons. A key is the beginning of a command.
NOT_RUN = {
    "python3 -m venv": "makes an environment",
    ".venv/bin/pip install": "needs a network; its extras are checked",
    "pip install": "needs a network; its extras are checked",
    ".venv/bin/python -m pytest": "runs these tests",
    ".venv/bin/pre-commit install": "changes the checkout",
    "bash .ci/lint": "is a separate step",
    "python -m build": "needs a network",
    "python .ci/release.py": "needs the built files",
    "bash .ci/run": "would run these tests",
    "bash docs/lab/lots.sh": "needs a GPU",
    "python docs/settings.py": "has a separate test, which checks the table",
    "python -m sphinx": "builds the site, which is a separate step",
    "memes run ant --devices 4": "needs four devices",
    "memes resume RUN --devices 2": "needs two devices",
    "nvidia-cuda-mps-control": "needs a GPU",
    "export": "is for the shell",
    "cp": "is for the shell",
    "memes reproduce all --out results --report-only": "would replace the results",
    "srun": "needs Slurm",
    "memes resume runs/big": "needs a run that Slurm has started",
    "memes run arm --lanes 64 --coordinator": "needs the other process",
    "memes run robot:half_cheetah.xml": "needs a model of another package",
    "memes run robot:ant.xml": "needs a model of another package",
}
NEEDS = {"robot": "mujoco"}  # the package that a task family needs, if the two names differ
KINDS = ("inline", "python", "sh", "toml", "text", "bibtex")
SCALES = command_line.SCALES
GENERATIONS, SEEDS = 3, 2
SMALL = {
    "generations": GENERATIONS, "joints": 8, "lanes": 4, "samples": 8, "batch": 44, "fifo_size": 50,
    "candidate_samples": 2,
    "steps": 6, "hidden": (4,), "reevaluate_samples": 4,
}  # fmt: skip


class Piece(NamedTuple):
    """A fenced block with its language, or inline code."""

    kind: str
    text: str
    line: int


def pieces(text):
    """Yield the code blocks and inline code of a document, in order."""
    fence, begin, inside = None, 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        opens = re.match(r"\s*```(.*)", line)
        if fence is None and (opens or not line.strip() or line.startswith("|")):
            for code in re.findall(r"`([^`]+)`", " ".join([*inside, line] if not opens else inside)):
                yield Piece("inline", " ".join(code.split()), number)
            inside = []
        if opens and fence is None:
            fence, begin = opens[1].strip(), number
        elif opens:
            yield Piece(fence, "\n".join(inside) + "\n", begin + 1)
            fence, inside = None, []
        elif fence is not None or (line.strip() and not line.startswith("|")):
            inside.append(line)


def commands(piece):
    """Yield the commands in a piece of code."""
    lines = piece.text.splitlines() if piece.kind == "sh" else []
    if piece.kind == "inline" and is_command(piece.text):
        lines = [piece.text]
    for line in lines:
        yield from (" ".join(part.split()) for part in line.split("#")[0].split("&&") if part.strip())


def is_command(code):
    """Return whether inline code is a complete command, and not only the name of a command."""
    program, *arguments = code.split()
    mentions = [f"memes {name}" for name, (needed, _) in COMMANDS.items() if needed]
    return program in PROGRAMS and bool(arguments) and code not in mentions


@pytest.fixture(scope="module")
def small(traced_once):
    """Reduce all runs to small algorithms, small tasks, few generations and few seeds."""
    original = api.run

    @functools.wraps(original)
    def run(algorithm, *, generations, seeds=None, observers=(), **options):
        small = {"generations": min(generations, GENERATIONS), "observers": quick(observers)}
        return original(
            algorithm, seeds=None if seeds is None else list(seeds)[:SEEDS], **small, **options
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "run", run)
        patch.setattr(command_line, "SCALES", {"paper": SMALL, "laptop": SMALL})
        patch.setattr(command_line, "TASK_SCALES", {"paper": {}, "laptop": {}})
        patch.setitem(experiments.CHANGES, "laptop", {})
        # Replace functions that are slow or run until Ctrl-C. The command `plot` still draws figures.
        patch.setattr(end_of_run, "save_figures", lambda run: [])
        patch.setattr(doctor, "self_check", dict)
        for command in (replay, view):
            patch.setattr(command, "browse", lambda *about, **more: None)
        patch.setattr(view, "viewed", lambda out, task: nullcontext())
        yield


def quick(observers):
    """Return the observers, but with fewer samples per correction."""
    others = [each for each in observers if not isinstance(each, memes.Corrections)]
    given = [each for each in observers if isinstance(each, memes.Corrections)] or [memes.Corrections()]
    return [*others, *(replace(each, samples=SMALL["reevaluate_samples"]) for each in given)]


@pytest.fixture(scope="module")
def robot_run(small, tmp_path_factory):
    """A run of an uncertain robot task. It appears to have stopped one generation before its end."""
    folder = tmp_path_factory.mktemp("robot") / "RUN"
    assert main(["run", "ant-trap", "--quiet", "--out", str(folder)]) == 0
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"generations": GENERATIONS + 1}))
    return folder


@pytest.fixture
def place(document, small, traced_once, request, tmp_path, monkeypatch):
    """Create a folder that resembles a checkout. It contains a run if the document mentions a run."""
    traced_once.clear()  # compiled programs of earlier documents use too much memory
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name in ("examples", "results", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    if " RUN" in document.read_text():
        shutil.copytree(request.getfixturevalue("robot_run"), "RUN")


@pytest.fixture(scope="module")
def ran_before():
    """Commands that use the run folder and were already executed for other documents."""
    return set()


def takes_long(document):
    """Return True for tutorials and laboratory notes, and for pages that repeat many other commands."""
    return document.parent.name in ("tutorials", "lab") or document.stem in (
        "beyond",
        "cheatsheet",
        "reproduce",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(path, marks=pytest.mark.long if takes_long(path) else (), id=named(path))
        for path in DOCUMENTS
    ],
)
def test_snippets_and_commands_run_as_printed(document, place, ran_before, capsys):
    names, ran = {"__name__": document.stem}, set(ran_before)
    for piece in pieces(document.read_text()):
        where = f"{document.name}:{piece.line}"
        file = re.match(r"# (\S+\.(?:py|toml))\n", piece.text)
        if file:
            Path(file[1]).write_text(piece.text)
        if piece.kind.startswith("{"):  # the build of the site runs or checks directives
            continue
        assert piece.kind in KINDS, f"{where}: the block has no supported language"
        if piece.kind == "python" and not lacking(re.findall(r"memes\.tasks\.(\w+)\(", piece.text)):
            lines = "\n" * (piece.line - 1) + piece.text  # so that tracebacks show the right line
            exec(compile(lines, str(document), "exec"), names)
        for command in commands(piece):
            if command not in ran:
                ran.add(command)
                run_command(command, f"{where}: {command}", capsys)
    ran_before |= {command for command in ran if re.search(r" RUN\b", command)}


def run_command(command, where, capsys):
    """Run a command. If it is in `NOT_RUN`, only check that its package extras exist."""
    if any(command.startswith(start) for start in NOT_RUN):
        check_extras(command)
        return
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    if words[0] == "python":  # a benchmark: only its options are parsed
        code = called(lambda: with_arguments([*words[1:], "--help"]))
    elif lacking(words):
        return
    else:
        with pytest.MonkeyPatch.context() as patch:
            if "--report-only" in words:  # for existing runs at the paper's scale
                patch.setattr(command_line, "SCALES", SCALES)
            code = called(lambda: main([*words[1:], *smaller(words)]))
    printed = capsys.readouterr()
    process_memory.free()  # each command compiles different programs
    assert code == 0, f"{where}\n{printed.err}"


def smaller(words):
    """Return options that reduce the size of a command. They override earlier options."""
    if words[1] == "reproduce":
        if any(word.startswith("evidence/") for word in words):
            return ["--list"]  # these experiments take hours on a GPU
        return [] if "--list" in words else ["--labels", "memes", "--seeds", "1"]
    if words[1] == "video":
        return ["--seconds", "0.2", "--elites", "1"]
    if words[1] != "run":
        return []
    asked = [name for name in SMALL if f"--{name}" in words]
    return [part for name in asked for part in (f"--{name}", str(SMALL[name]))]


def called(function):
    try:
        return function()
    except SystemExit as stopped:
        return stopped.code


def with_arguments(words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        runpy.run_path(words[0], run_name="__main__")


def lacking(words):
    """Return whether this machine lacks files, tools or packages that a command needs."""
    if WITHOUT_RESULTS and any(word.startswith("results/") for word in words):
        return True
    families = [word.partition(":")[0] for word in words]
    if any(find_spec(NEEDS.get(name, name)) is None for name in families if name in FAMILIES):
        return True
    try:
        videos = [
            i for i, word in enumerate(words) if word == "--video" or (i > 1 and words[1] == "video")
        ]
        if "--sheet" in words or videos:
            pictures.library()
        for name in [word for i in videos for word in words[i + 1 : i + 2] if "." in word]:
            video_formats.check_video("video", Path(name))
    except memes.UsageError:
        return True
    return False


def check_extras(command):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"\[([\w,-]+)\]", command):
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), command


def test_every_entry_of_not_run_is_used():
    every = (piece for document in DOCUMENTS for piece in pieces(document.read_text()))
    printed = [command for piece in every for command in commands(piece)]
    for start in NOT_RUN:
        assert any(command.startswith(start) for command in printed), start


def test_all_code_is_found():
    text = """
Say `memes list`, or `memes
plot RUN...`, not `memes plot`.

| `memes doctor` | `python x.py` |
```sh
ls && a b  # c
```
```python
x = 1
```
"""
    found = list(pieces(text))
    assert [command for piece in found for command in commands(piece)] == [
        *("memes list", "memes plot RUN...", "memes doctor", "python x.py", "ls", "a b")
    ]
    assert found[-1] == Piece("python", "x = 1\n", 10)


@each_document
def test_commands_are_not_in_indented_blocks(document):
    assert not re.findall(rf"^ {{4,}}(?:{'|'.join(PROGRAMS)}) .*", document.read_text(), re.MULTILINE)


@each_document
def test_names_in_inline_code_exist(document):
    """If code calls `memes.NAME(...)`, NAME is an attribute of `memes`. Other names can be imported."""
    for piece in pieces(document.read_text()):
        for name, call in re.findall(r"\bmemes\.([A-Za-z_][\w.]*\w)(\()?", piece.text):
            if piece.kind == "inline" and not piece.text.startswith("from ") and "/" not in piece.text:
                where = f"{document.name}:{piece.line}: {piece.text}"
                if call:
                    assert functools.reduce(getattr, name.split("."), memes), where
                else:
                    assert pkgutil.resolve_name(f"memes.{name}"), where


def all_flags():
    """Return every option of every command."""
    found = {name for group in command_line.run_options().values() for name in group}
    found |= {name for preset in memes.PRESETS.values() for name in options_of(preset.build)}
    for make in (*memes.TASKS.values(), *(functools.partial(make, "") for make in FAMILIES.values())):
        found |= set(options_of(make))
    found |= set(parameters(CheckOptions()))
    for command in COMMANDS:
        function = getattr(import_module(f"memes.commands.{command}"), command)
        found |= set(parameters(function)) | set(inspect.signature(function).parameters)
    return {"help", *found}


@each_document
def test_flags_in_inline_code_exist(document):
    flags = all_flags()
    for kind, code, line in pieces(document.read_text()):
        if kind == "inline" and code.startswith("--"):
            name = code.split()[0].split("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
            assert name in flags, f"{document.name}:{line}: {code}"


def anchors(document):
    """Return the anchors of a document's headings, as GitHub generates them."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", LINKED, ids=named)
def test_links_and_anchors_resolve(document):
    targets = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    for target in targets:
        if not target.startswith(
            ("http", "made/", "../made/")
        ):  # the build of the site creates the files in `made` and checks these links
            path, _, anchor = target.partition("#")
            other = (document.parent / path).resolve() if path else document
            if WITHOUT_RESULTS and other.is_relative_to(ROOT / "results"):
                continue
            assert other.exists(), f"{document.name}: {target}"
            assert not anchor or anchor in anchors(other), f"{document.name}: {target}"


def test_the_table_of_settings_is_up_to_date():
    """`python docs/settings.py` writes the table."""
    script = runpy.run_path(str(ROOT / "docs" / "settings.py"))
    page = script["PAGE"].read_text()
    assert script["written"](page) == page


def test_every_page_is_in_a_list_of_pages():
    """Every page is in a toctree. Every how-to page is also in the table of how-to pages."""
    index, howto = ROOT / "docs" / "index.md", ROOT / "docs" / "howto"
    listed = {(index.parent / name).resolve() for name in index.read_text().split()}
    text = (howto / "index.md").read_text()
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/lab").glob("*.md")]
    assert {page for page in pages if page.with_suffix("") not in listed} == {index}
    for page in howto.glob("*.md"):
        if page.stem != "index":
            assert f"({page.name})" in text, page
            assert f"\n{page.stem}\n" in text, page


@pytest.mark.parametrize("document", ["README.md", "docs/index.md"])
def test_the_number_of_algorithms_is_correct(document):
    sentence = f"(MEMES), {len(memes.PRESETS) - 1} other algorithms"
    assert sentence in " ".join((ROOT / document).read_text().split())


def test_the_reference_documents_every_option():
    functions = [preset.build for preset in memes.PRESETS.values()]
    for function in (*functions, *memes.TASKS.values(), *FAMILIES.values(), memes.tasks.stepped):
        function = function.func if isinstance(function, functools.partial) else function
        text = inspect.getdoc(function)
        for name in inspect.signature(function).parameters:
            assert f"\n    {name}: " in text, (function, name)
