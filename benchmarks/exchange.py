"""Count the bytes that devices exchange per generation.

The script compiles programs for several simulated devices of one CPU, without executing them. It adds up
the bytes of the collective operations in these programs.
"""

from __future__ import annotations

import argparse
import os
import re

SIZES = {"pred": 1, "u8": 1, "s32": 4, "u32": 4, "f32": 4}
COLLECTIVE = re.compile(r"= (\w+)\[([\d,]*)\]\S* (all-gather|all-reduce)\(")


def main() -> None:
    """Print a table of the exchanged bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="ant")
    parser.add_argument("--algorithm", default="memes")
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--lanes", type=int, default=32, help="per device; for ME, the batch per device")
    parser.add_argument("--samples", type=int, default=512)
    parsed = parser.parse_args()
    more = f" --xla_force_host_platform_device_count={max(parsed.devices)}"
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + more

    import jax

    import memes
    from memes.runner.device import compile_run
    from memes.runner.placement import placed

    jax.config.update("jax_disable_most_optimizations", True)
    task = memes.TASKS[parsed.task]()
    print("| devices | lanes | gathered | summed | total |\n|---|---|---|---|---|")
    for devices in parsed.devices:
        lanes = devices * parsed.lanes
        sizes = (
            {"batch": lanes} if parsed.algorithm == "me" else {"lanes": lanes, "samples": parsed.samples}
        )
        algorithm = memes.PRESETS[parsed.algorithm].build(task, **sizes)
        placement = placed(algorithm, devices, None, 1)
        text = compile_run(algorithm, placement, 1, 100)[1].as_text()
        found = {"all-gather": 0, "all-reduce": 0}
        for kind, shape, name in COLLECTIVE.findall(text):
            entries = 1
            for length in filter(None, shape.split(",")):
                entries *= int(length)
            found[name] += entries * SIZES[kind]
        in_words = [f"{size:,}" for size in (*found.values(), sum(found.values()))]
        print(f"| {devices} | {lanes} | {' | '.join(in_words)} |", flush=True)


if __name__ == "__main__":
    main()
