"""The command `memes resume`."""

from __future__ import annotations

from pathlib import Path

from memes import api
from memes.commands.run import conclude
from memes.options.command_line import run_options
from memes.options.flags import options_of
from memes.options.from_run import algorithm_of
from memes.options.names import code_of, is_own
from memes.options.workers import WorkerOptions
from memes.parameters import flat
from memes.presets import PRESETS
from memes.runner.loggers import Logger
from memes.runner.multihost import HostOptions, join_processes
from memes.runner.progress import Reporter
from memes.store.find import run_folders
from memes.store.folder import load_config
from memes.tasks import TASKS


def whose(option: str) -> str:
    """Explain why an option of `memes run` is not an option of `memes resume`."""
    if option == "evaluations":
        return "is fixed by the run: extend it with --generations N"
    makes = (*(preset.build for preset in PRESETS.values()), *TASKS.values())
    own = [*run_options().values(), *map(options_of, makes)]
    fixed = any(option in options for options in own)
    return "is fixed by the run: start a new run with 'memes run'" if fixed else ""


@flat
def resume(
    run: Path,
    *,
    generations: int | None = None,
    task: str | None = None,
    algorithm: str | None = None,
    track: tuple[str, ...] = (),
    devices: int | None = None,
    quiet: bool = False,
    worker_options: WorkerOptions = WorkerOptions(),
    host_options: HostOptions = HostOptions(),
) -> int:
    """Continue a run, or the runs of several seeds, as if they had not been stopped.

    Args:
        run: Folder of the run, or a folder that contains the runs of several seeds.
        generations: Total number of generations. By default, the number of the original run is used.
        task: Custom task of the run, if any, as module:name or file.py:name. The code of the task is
            executed.
        algorithm: Custom algorithm of the run, if any, as module:name or file.py:name. The code of the
            algorithm is executed.
        track: Tools that receive the metrics, as in 'memes run'.
        devices: Number of devices. By default, the largest available number that divides the number of
            shards is used.
        quiet: Do not show progress.
        worker_options: Options of workers that evaluate a simulator.
        host_options: Options of runs on several processes. The number of processes may differ from the
            original run.
    """
    start = Path.cwd()
    processes = join_processes(**vars(host_options))
    first = run_folders(run)[0]
    place = run.absolute()  # because a simulator may change the current folder
    report, recorded = Reporter(show=not quiet and processes.leads), load_config(first).provenance.code
    for name in (name for name in (task, algorithm) if name and is_own(name)):
        if recorded.get(name, code_of(name)) != code_of(name):
            report.say(f"the code of '{name}' has changed since the run began")
    trackers = [Logger(name) for name in track]
    with worker_options.executor() as executor:
        runs = api.resume(
            algorithm_of(first, task, algorithm, executor),
            place if Path.cwd() != start else run,
            generations=generations,
            devices=devices,
            observers=trackers,
            progress=not quiet,
        )
    processes.disconnect()
    if not processes.leads:
        return 0
    found = runs if isinstance(runs, list) else [runs]
    left = sum(load_config(folder).outcome is None for folder in run_folders(place))
    return conclude(found, len(found) + left, run)
