"""Test the command line: the order of arguments, the help, and the suggestions in error messages."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import memes
from memes.commands import main as commands
from memes.commands import run
from memes.commands.main import main
from memes.errors import PACKAGE, install_command, nearest
from memes.options import command_line, flags
from memes.options.examples import EXAMPLES
from memes.presets import PRESETS

pytestmark = pytest.mark.usefixtures("traced_once")
OWN = """
from __future__ import annotations
import memes

def leg(*, joints: int = 3, straight: bool = False) -> memes.Task:
    return memes.tasks.arm(joints=joints)

def helper(x):
    return x

def bare(task, cells):
    return memes.presets.me(task, cells, batch=4)

def named(task, cells, *, batch: int = 4):
    lines = memes.emitters.Isoline(batch)
    return memes.compose(task, lines, cells=cells, name="My search / 2")

task = leg()
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)


def error_of(words, capsys):
    assert main(words) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "arm --algorithm me --joints 7 --batch 8 --resolution 4 5 -g 3 -o there --quiet",
        "--algorithm me --joints 7 --batch 8 --resolution 4 5 -g 3 -o there --quiet arm",
        "--quiet --joints 7 --resolution 4 5 arm -g=3 --batch=8 --out there --algorithm=me",
        "--batch 8 --quiet arm --resolution 4 5 --generations 3.0e0 --joints 7 -o there --algorithm me",
    ],
)
def test_options_may_be_before_or_after_the_task(words):
    parsed = command_line.parse(words.split(), "memes run")
    assert (parsed.task, parsed.choice.algorithm, parsed.choice.out) == ("arm", "me", Path("there"))
    assert parsed.task_options == {"joints": 7}
    assert parsed.algorithm_options["batch"] == 8
    assert parsed.choice.resolution == (4, 5)
    assert parsed.running["generations"] == 3
    assert parsed.choice.quiet


@pytest.mark.parametrize("words", ["own.py:leg --straight", "--straight own.py:leg"])
def test_an_option_of_a_task_that_takes_no_value_may_be_before_it(words):
    parsed = command_line.parse(words.split(), "memes run")
    assert (parsed.task, parsed.task_options) == ("own.py:leg", {"joints": 3, "straight": True})


def test_negative_numbers_are_values_and_double_hyphens_end_flags():
    options = command_line.run_options()["run"]
    line = flags.split(["--seed", "-1", "-g", "5", "--", "--odd"], options)
    assert [(flag.name, flag.values) for flag in line.flags] == [
        ("seed", ("-1",)),
        ("generations", ("5",)),
    ]
    assert line.placed == ["--odd"]


def test_every_option_of_a_run_is_in_one_group_and_common_options_come_first():
    grouped = [name for names in command_line.GROUPS.values() for name in names]
    options = command_line.run_options()
    assert sorted(grouped) == sorted([*options["run"], *options["observer"]])
    assert next(iter(command_line.GROUPS)) == "common options"


def test_help_begins_with_common_options_and_ends_with_examples(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["run", "own.py:leg", "--help", "--algorithm", "me"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == [
        *command_line.GROUPS,
        "options of task own.py:leg",
        "options of algorithm me",
        "examples",
    ]
    assert "-g, --generations INT" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("command", [*commands.COMMANDS])
def test_two_forms_of_help_for_a_command_are_equal(command, capsys):
    for words in (["help", command], [command, "--help"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
    text = capsys.readouterr().out
    first, second = text[: len(text) // 2], text[len(text) // 2 :]
    assert first == second
    assert first.startswith(f"usage: memes {command}")


def test_examples_use_options_that_exist(capsys):
    for line in (line for lines in EXAMPLES.values() for line in lines):
        words = shlex.split(line.partition(">")[0])
        assert words[0] == "memes"
        with pytest.raises(SystemExit):
            main([words[1], "--help"])
        text = capsys.readouterr().out
        for word in words[2:]:
            own = word.startswith("-") and word != "--joints"  # --joints is an option of a task
            assert not own or re.search(rf"(^|\s){word}\b", text), line


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ME", "me"),
        ("map-elites", "me"),
        ("MAP-Elites", "me"),
        ("map_elites", "me"),
        ("ME-16384", "me"),
        ("CMA ME", "cma-me"),
        ("MEMES-all", "memes-all"),
        ("mems", "memes"),
        ("unlike anything", None),
    ],
)
def test_names_from_the_literature_take_precedence_over_similar_names(name, meant):
    assert nearest(name, PRESETS) == meant


def test_a_name_is_not_similar_to_an_unrelated_one():
    assert nearest("Nope-v0", ["Hopper-v5", "Ant-v5"]) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run own.py", "add the name of an object in the file, such as own.py:leg, own.py:task\n"),
        ("run arm --algorithm own.py", "such as own.py:bare, own.py:named\n"),
        ("run arm --algorithm me --lanes 4", "--lanes is an option of memes, memes-all"),
        ("run point-maze --joints 4", "--joints is an option of task arm, noisy-arm, not of point-maze"),
        ("run arm --scale laptop me", "unexpected 'me'"),
        ("run --lanse 4 arm", "unknown option '--lanse': did you mean '--lanes'?"),
        ("run arm --epochs 3", "unknown option '--epochs': did you mean '--generations'?"),
        ("run arm --popsize 3", "unknown option '--popsize': did you mean '--samples'?"),
        ("run arm --algorithm me --popsize 3", "did you mean '--batch'?"),
        ("run arm --gen 3", "did you mean '--generations'?"),
        ("run arm --no-figures", "did you mean '--no-figures-draw'?"),
        ("run arm --xyz 3", "unknown option '--xyz': --help lists the options"),
        ("run arm -g3x", "-g must be INT, got '3x'"),
        ("export there --format csv", "did you mean '--to'?"),
        ("compare there --xyz", "choose from --out, --overwrite, --include-short, --help"),
        ("run own.py:tsak", "'own.py' has nothing called 'tsak': did you mean 'own.py:task'?"),
        ("resume there --evaluations 9", "--evaluations is fixed by the run: extend it with"),
        ("run arm --quiet=1", "--quiet takes no value, got '1'"),
        ("run arm --resolution 4.5 5", "--resolution must be INT [INT ...], got '4.5 5'"),
        ("run arm --lanes 1e400", "--lanes must be INT, got '1e400'"),
        ("resume there --lanes 4", "--lanes is fixed by the run"),
        ("export there --to xlsx", "unknown value of --to 'xlsx': choose from csv, npz"),
        ("export there", "--to is missing: give it as --to {csv,npz,parquet,"),
        ("compare there --short", "--short is called --include-short now"),
        ("completion fish", "unknown value of SHELL 'fish': choose from bash, zsh"),
    ],
)
def test_messages_suggest_a_correction(words, sentence, capsys):
    error = error_of(words.split(), capsys)
    assert sentence in error
    assert error.count("\n") == 1


def test_extras_are_installed_like_the_package(tmp_path, monkeypatch):
    index = f"pip install '{PACKAGE}[view]'"
    assert install_command("view", None) == index
    assert install_command("view", {"url": (tmp_path / "gone").as_uri()}) == index
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    there = {"url": checkout.as_uri(), "dir_info": {}}
    assert install_command("view", there) == f"pip install '{checkout}[view]'"
    editable = there | {"dir_info": {"editable": True}}
    assert install_command("view", editable) == f"pip install -e '{checkout}[view]'"
    monkeypatch.chdir(checkout)
    assert install_command("cuda,view", editable) == "pip install -e '.[cuda,view]'"
    wheel = checkout / "memes.whl"
    wheel.touch()
    assert install_command("view", {"url": wheel.as_uri()}) == f"pip install '{wheel}[view]'"


@pytest.mark.parametrize(
    ("words", "label", "folder"),
    [
        ("--algorithm me --batch 4", "me", "arm-me"),
        ("--algorithm own.py:bare", "me", "arm-me"),
        ("--algorithm own.py:named", "My search / 2", "arm-My-search-2"),
        ("--algorithm own.py:named --label paper", "paper", "arm-paper"),
    ],
)
def test_folders_and_labels_come_from_names(words, label, folder, capsys):
    command = f"run own.py:task {words} -g 1 --resolution 4 4 --no-figures-draw --quiet"
    assert main(command.split()) == 0
    saved = memes.load_run(Path("runs") / folder / "seed-0")
    assert saved.config.label == label
    summary = memes.store.summary.summarise(saved)
    assert (summary.task, summary.label) == ("arm", label)
    assert f"<Run: {label} on arm, seed 0" in repr(saved)


def test_a_run_of_a_named_composition_is_resumed(capsys):
    words = ["run", "arm", "--joints", "3", "--algorithm", "own.py:named", "--out", "there", "--quiet"]
    assert main([*words, "-g", "1", "--no-figures-draw"]) == 0
    assert main(["resume", "there", "--algorithm", "own.py:named", "-g", "2", "--quiet"]) == 0
    assert memes.load_run("there").config.label == "My search / 2"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_words_are_completed(capsys):
    assert main(["completion", "bash"]) == 0
    Path("completion.sh").write_text(capsys.readouterr().out)
    expected = {
        "memes re": " ".join(name for name in commands.COMMANDS if name.startswith("re")),
        "memes run a": " ".join(name for name in memes.TASKS if name.startswith("a")),
        "memes run arm --algorithm me-": " ".join(name for name in PRESETS if name.startswith("me-")),
        "memes run --generat": "--generations",
        "memes compare --ov": "--overwrite",
        "memes export there --to par": "parquet",
    }
    for words, found in expected.items():
        script = (
            f". ./completion.sh; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
            '_memes; echo "${COMPREPLY[*]}"'
        )
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split() == found.split()


def test_a_pipe_that_is_closed_early_causes_no_message():
    command = "memes reproduce --list | head -n 1"
    program = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{program}:{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_folders_have_valid_names_for_any_name_of_a_task(tmp_path):
    parsed = command_line.parse(["arm", "--joints", "2"], "memes run")
    for names, folder in {
        ("x/../y", "me"): "x-y-me",
        ("$", "a" * 300): f"unnamed-{'a' * 100}",
    }.items():
        with run.output_folder(names, parsed, tmp_path) as out:
            assert out.parent.name == folder


@pytest.mark.parametrize(("generations", "better"), [(3, "me"), (10**6, "memes-me")])
def test_a_run_of_a_custom_task_suggests_a_better_algorithm(generations, better):
    parsed = command_line.parse(["own.py:leg", "--joints", "200", "--lanes", "4"], "memes run")
    message = run.better_choice("own.py:leg", parsed.build(), generations=generations, evaluations=None)
    assert f"'--algorithm {better}' may be better (deterministic, with " in message
