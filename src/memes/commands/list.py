"""The command `memes list`."""

from __future__ import annotations

import textwrap

from memes.presets import PRESETS
from memes.tasks import FAMILIES, TASKS


def list() -> None:
    """List all tasks and algorithms with short descriptions."""
    makes = TASKS | {f"{family}:NAME": make for family, make in FAMILIES.items()}
    tasks = {name: (make.__doc__ or "").strip().partition("\n")[0] for name, make in makes.items()}
    algorithms = {name: preset.summary for name, preset in PRESETS.items()}
    for title, entries in (("tasks", tasks), ("algorithms", algorithms)):
        print(f"{title}:")
        for name, summary in entries.items():
            print(textwrap.fill(f"  {name:18} {summary}", 79, subsequent_indent=" " * 21))
