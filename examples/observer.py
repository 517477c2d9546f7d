"""A custom observer that stops a run when the archive no longer grows.

An observer is a frozen dataclass. Its fields are its settings, and `config.json` records them.
"""

from dataclasses import dataclass

import memes


@dataclass(frozen=True)
class Stagnation:
    """Stop a run when its coverage has not grown for `patience` generations."""

    patience: int = 50

    def watch(self, context: memes.RunContext) -> memes.Callbacks:
        """Return the callbacks of one run. With several seeds, this method is called once per seed."""

        def due(generation: int) -> bool:  # whether a device call must end here
            return generation % 10 == 0

        def on_update(update: memes.Update) -> None:  # also called after other generations
            coverage = update.run.metrics["coverage"]
            before = coverage[: -self.patience]  # empty in the first generations
            if due(len(coverage)) and coverage[-1] in before:
                context.stop(f"coverage has not grown for {self.patience} generations")

        return memes.Callbacks(due=due, on_update=on_update)


if __name__ == "__main__":
    task = memes.tasks.arm(joints=10)
    algorithm = memes.presets.memes(task, memes.cells.grid(task, (16, 16)), lanes=8, samples=32)
    result = memes.run(algorithm, generations=5000, seed=0, observers=[Stagnation(patience=50)])
    print(f"stopped after {result.generations} generations: {result.stopped}")
    print(f"coverage {result.metrics['coverage'][-1]:.1%}")
