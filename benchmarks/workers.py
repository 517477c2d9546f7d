"""Compare the speed of a slow Python simulator on several workers with its speed in one process.

    python benchmarks/workers.py                       a simulator that counts in Python
    python benchmarks/workers.py --simulator wait      a simulator that waits

Both simulators take about five milliseconds per genotype. The script evaluates genotypes without
workers, with one worker, and with `--workers` workers. A warm-up call starts the workers. The script
then measures the three variants alternately. The table shows the ratios of the median times. The
simulator that waits represents simulators that call other programs. Because it uses no core, it shows
the cost of workers even on a busy machine.
"""

import argparse
import statistics
import time

import jax
import numpy as np

import memes

ROUNDS = 60_000  # number of loop iterations, which take about five milliseconds in total


def count(keys: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate genotypes one by one in pure Python, which holds the interpreter lock."""
    totals = []
    for row in x:
        total = 0.0
        for i in range(ROUNDS):
            total += i * row[0].item() if i % 4096 == 0 else 1e-9
        totals.append(total)
    return np.array(totals), x[:, :2]


def wait(keys: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wait for five milliseconds per genotype."""
    time.sleep(0.005 * len(x))
    return x.sum(axis=1), x[:, :2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulator", choices=["count", "wait"], default="count")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    evaluate = {"count": count, "wait": wait}[options.simulator]
    task = memes.Task(
        "count", 4, (0.0, 0.0), (1.0, 1.0), memes.uniform(4, 0.0, 1.0), evaluate, jit=False
    )
    keys = jax.random.split(jax.random.key(0), options.rows)
    x = np.asarray(task.init(jax.random.key(1), options.rows))
    with memes.workers(1) as one, memes.workers(options.workers) as several:
        contestants = {
            "in the same process": task,
            "1 worker": memes.parallelize(task, one),
            f"{options.workers} workers": memes.parallelize(task, several),
        }
        found = {
            name: np.asarray(each.evaluate(keys, x)[0], np.float32) for name, each in contestants.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(options.repeats):
            for name, each in contestants.items():
                start = time.perf_counter()
                each.evaluate(keys, x)
                seconds[name].append(time.perf_counter() - start)
    first = next(iter(contestants))
    for name, taken in seconds.items():
        assert found[name].tobytes() == found[first].tobytes()
        middle, ratio = (
            statistics.median(taken),
            statistics.median(seconds[first]) / statistics.median(taken),
        )
        spread = f"[{min(taken):.2f}, {max(taken):.2f}]"
        print(f"{name:20} {middle:.2f} s {spread} for {options.rows} rows, {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
