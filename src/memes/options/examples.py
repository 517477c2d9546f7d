"""Examples of commands for the end of help texts."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "memes run": (
        "memes run arm --scale laptop",
        "memes run arm --algorithm me -g 500 -s 3 -o runs/mine",
        "memes run task.py:task --evaluations 1000000 --seeds 5 --label mine",
        "memes run gymnasium:LunarLander-v3 --workers 8 --scale laptop",
    ),
    "memes check": (
        "memes check arm --joints 20",
        "memes check task.py:task --minutes 10",
        "memes check gymnasium:LunarLander-v3 --workers 8",
    ),
    "memes resume": (
        "memes resume runs/arm-memes/seed-0",
        "memes resume runs/arm-memes/seed-0 -g 4000",
        "memes resume runs/mine --task task.py:task",
    ),
    "memes reevaluate": ("memes reevaluate runs/ant-memes/seed-0 --samples 128",),
    "memes plot": ("memes plot runs/arm-memes", "memes plot 'runs/arm-*'"),
    "memes compare": (
        "memes compare runs/arm-memes runs/arm-me",
        "memes compare 'runs/arm-*' -o figures/arm --overwrite",
    ),
    "memes merge": (
        "memes merge runs/arm-memes runs/arm-me -o merged.npz",
        "memes merge 'runs/ant-*' --corrected -o merged.npz",
    ),
    "memes view": ("memes view runs/arm-memes", "memes view 'runs/ant-*' --port 8090"),
    "memes replay": (
        "memes replay runs/ant-memes/seed-0",
        "memes replay runs/ant-memes/seed-0 --sheet elite.png",
        "memes replay runs/ant-memes/seed-0 --feature 0.2 0.4 0.1 0.3 --video elite.mp4",
    ),
    "memes video": ("memes video runs/ant-memes/seed-0 -o ant.mp4 --elites 6",),
    "memes export": ("memes export runs/arm-memes/seed-0 --to csv",),
    "memes completion": (
        "memes completion bash > ~/.local/share/bash-completion/completions/memes",
        "memes completion zsh >> ~/.zshrc",
    ),
    "memes reproduce": (
        "memes reproduce --list",
        "memes reproduce main --scale laptop --tasks arm --seeds 3",
    ),
}
