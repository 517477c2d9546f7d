"""A custom observer: it stops a run when its archive no longer grows.

An observer is a frozen dataclass. Its fields are its settings, which are recorded in `config.json`.
"""

from dataclasses import dataclass

import memes


@dataclass(frozen=True)
class Stagnation:
    """Stop a run when its coverage has not grown for `patience` generations."""

    patience: int = 50

    def watch(self, context: memes.RunContext) -> memes.Callbacks:
        """Return the callbacks of one run; several seeds are followed separately."""

        def due(generation: int) -> bool:  # a device call ends here, on any machine
            return generation % 10 == 0

        def on_update(update: memes.Update) -> None:  # called at least then, perhaps more often
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
