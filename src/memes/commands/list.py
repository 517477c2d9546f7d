"""`memes list`."""

from __future__ import annotations

from collections.abc import Sequence

from memes.errors import require
from memes.presets import PRESETS
from memes.tasks import TASKS


def list(arguments: Sequence[str]) -> None:
    """Show the tasks and the algorithms, a line each."""
    require(not arguments, f"memes list takes no arguments, got '{' '.join(arguments)}'")
    tasks = {name: (make.__doc__ or "").strip().partition("\n")[0] for name, make in TASKS.items()}
    algorithms = {name: preset.summary for name, preset in PRESETS.items()}
    for title, entries in (("tasks", tasks), ("algorithms", algorithms)):
        print(f"{title}:")
        for name, summary in entries.items():
            print(f"  {name:18} {summary}")
