"""Runs that need more memory than is available."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import memes
from memes.runner import device, memory


@pytest.fixture(scope="module")
def optimised():
    return True


TASK = memes.tasks.arm(joints=4)


def small(task):
    return memes.presets.memes(task, memes.cells.grid(task, (10, 10)), lanes=4, samples=8, fifo_size=64)


def run(task=TASK, **options):
    return memes.run(small(task), generations=6, seed=1, progress=False, **options)


def elementwise():
    """Return a task without reductions, because their rounding might depend on the batch size."""

    def evaluate(keys, x):
        noise = jax.vmap(jax.random.normal)(keys)
        return x[:, 0] * x[:, 1] + 0.1 * noise, jnp.sin(x[:, 2:4]) * x[:, :2]

    return memes.Task(
        name="elementwise",
        dim=4,
        feature_low=(0, 0),
        feature_high=(1, 1),
        init=memes.uniform(4, 0.0, 1.0),
        evaluate=evaluate,
    )


@pytest.fixture(scope="module")
def whole():
    return run(elementwise())


@pytest.mark.parametrize("chunk", [7, 100])
def test_results_do_not_depend_on_the_chunk(chunk, whole):
    cut = run(elementwise(), chunk=chunk)
    jax.tree.map(np.testing.assert_array_equal, whole.state, cut.state)


def test_results_of_the_arm_depend_on_the_chunk_only_by_rounding():
    whole, cut = run(), run(chunk=7)
    np.testing.assert_allclose(cut.metrics["qd_score"], whole.metrics["qd_score"], rtol=1e-4)


def test_a_host_simulator_gets_at_most_the_rows_of_a_chunk():
    seen = []

    def simulate(keys, x):
        seen.append(len(x))
        assert len(keys) == len(x)
        return x.sum(axis=1), x[:, :2]

    task = memes.Task(
        name="host",
        dim=4,
        feature_low=(0, 0),
        feature_high=(1, 1),
        init=memes.uniform(4, 0.0, 1.0),
        evaluate=simulate,
        jit=False,
    )
    algorithm = small(task)
    seen.clear()
    memes.run(algorithm, generations=2, progress=False, chunk=10)
    assert seen == [10, 10, 10, 6] * 2


@pytest.mark.long
def test_a_run_that_exceeds_memory_is_evaluated_in_chunks(monkeypatch, tmp_path, capsys):
    full = []
    original = memory.needed

    def needed(compiled):
        full.append(original(compiled))
        return full[-1]

    monkeypatch.setattr(memory, "needed", needed)
    memes.run(small(TASK), generations=2, out=tmp_path / "fits")
    assert "of memory (" in capsys.readouterr().err
    assert memes.load_run(tmp_path / "fits").config.chunk is None
    # The available memory equals the memory that the run needs, but runs may use only nine tenths of it.
    monkeypatch.setattr(memory, "available", lambda: full[0])
    cut = memes.run(small(TASK), generations=2, out=tmp_path / "cut")
    printed = " ".join(capsys.readouterr().err.split())
    chunk = memes.load_run(tmp_path / "cut").config.chunk
    assert f"too little memory: evaluating in chunks of {chunk} of 36 evaluations" in printed
    assert chunk < 36
    assert cut.metrics["evaluations"][-1] == 72


@pytest.mark.parametrize(
    ("needs", "options", "expected"),
    [
        ([90], {}, (8, None)),
        ([91, 90], {}, (4, None)),
        ([91, 90], {"seeds": 3}, (2, None)),
        ([800, 400, 200, 90], {}, (1, None)),
        ([800, 400, 200, 100, 90], {}, (1, 32)),  # 32 of 36 rows
        ([800, 400, 200, 100, 95, 90], {}, (1, 16)),
        ([800, 400, 200, 100], {"chunk": 9}, (1, 9)),  # a given chunk is kept
        ([800, 90], {"exactly": True}, (8, 4)),
        ([180, 90], {"seeds": 1}, (1, 16)),
        ([180], {"seeds": 1, "chunk": 9}, (1, 9)),
    ],
)
def test_if_memory_is_short_seeds_and_then_rows_per_call_are_reduced(
    monkeypatch, needs, options, expected
):
    """`needs` lists the bytes that each successive program needs. The free memory is 100 bytes."""
    compiled, left = [], iter(needs)

    def compile_nothing(algorithm, placement, seeds, generations):
        compiled.append((seeds, algorithm.chunk))
        return None, None

    monkeypatch.setattr(device, "compile_run", compile_nothing)
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "needed", lambda compiled: next(left))
    options = {"seeds": 8, "chunk": None, "exactly": False, **options}
    algorithm = replace(small(TASK), chunk=options.pop("chunk"))
    program = device.compile_fitting(algorithm, generations=6, say=lambda message: None, **options)
    assert (program.seeds, program.algorithm.chunk) == compiled[-1] == expected
    assert len(compiled) == len(needs)


def test_chunks_shrink_to_powers_of_two():
    for rows, need, room in [(36, 100, 90), (1000, 10, 1), (16_416, 2**40, 2**35), (2, 9, 1)]:
        size = memory.smaller(rows, need, room)
        assert 1 <= size < rows
        assert size & (size - 1) == 0
    assert memory.smaller(1, 9, 1) == 1


def test_available_memory_and_its_text():
    assert memory.available() > 2**26
    assert memory.in_words(3 * 2**30) == "3.0 GiB"
    assert memory.in_words(5 * 2**20) == "5 MiB"


def machine(root, line, files):
    """Create a root folder with the files in which Linux describes control groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(line)
    for name, content in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")
    return root


V1 = "12:devices:/user.slice\n7:cpu,memory:/slurm/uid_1000/job_5/step_0\n1:name=systemd:/\n"
UNLIMITED = 9223372036854771712  # the value of version 1 of control groups
GROUPS = {
    "no group": ("", {}, None),
    "nonsense": ("x\n::\n0:memory\n", {"memory.max": "many", "memory.current": "x"}, None),
    "a container": ("0::/\n", {"memory.max": 3000, "memory.current": 2000}, 1000),
    "no limit": ("0::/\n", {"memory.max": "max", "memory.current": 2000}, None),
    "more than its limit": ("0::/\n", {"memory.max": 3000, "memory.current": 4000}, 1),
    "a throttle": ("0::/\n", {"memory.max": 9000, "memory.high": 2500, "memory.current": 2000}, 500),
    "caches of files are free": (
        "0::/\n",
        {"memory.max": 3000, "memory.current": 2000, "memory.stat": "anon 9\ninactive_file 500\nx 7"},
        1500,
    ),
    "a service of systemd": (
        "0::/user.slice/run-7.scope\n",
        {
            "memory.current": 9000,
            "user.slice/memory.max": "max",
            "user.slice/memory.current": 800,
            "user.slice/run-7.scope/memory.max": 700,
            "user.slice/run-7.scope/memory.current": 100,
        },
        600,
    ),
    "the group above has less left": (
        "0::/system.slice/slurmstepd.scope/job_5/step_0\n",
        {
            "system.slice/slurmstepd.scope/job_5/memory.max": 5000,
            "system.slice/slurmstepd.scope/job_5/memory.current": 4900,
            "system.slice/slurmstepd.scope/job_5/step_0/memory.max": 5000,
            "system.slice/slurmstepd.scope/job_5/step_0/memory.current": 100,
        },
        100,
    ),
    "a job, version 1": (
        V1,
        {
            "memory/memory.limit_in_bytes": UNLIMITED,
            "memory/memory.usage_in_bytes": 99,
            "memory/slurm/uid_1000/job_5/memory.limit_in_bytes": 4000,
            "memory/slurm/uid_1000/job_5/memory.usage_in_bytes": 1000,
            "memory/slurm/uid_1000/job_5/memory.stat": "total_inactive_file 200",
            "memory/slurm/uid_1000/job_5/step_0/memory.limit_in_bytes": UNLIMITED,
            "memory/slurm/uid_1000/job_5/step_0/memory.usage_in_bytes": 1000,
        },
        3200,
    ),
    "a container, version 1, whose folder is mounted as the root": (
        "7:memory:/docker/0123\n",
        {"memory/memory.limit_in_bytes": 4000, "memory/memory.usage_in_bytes": 1000},
        3000,
    ),
    "both versions": (
        "7:memory:/job\n0::/job\n",
        {
            "memory/job/memory.limit_in_bytes": 4000,
            "memory/job/memory.usage_in_bytes": 1000,
            "unified/job/memory.max": 2000,
            "unified/job/memory.current": 1000,
        },
        1000,
    ),
    "a path that leaves its root": (
        "0::/../../proc/self\n",
        {"../../../proc/self/memory.max": 3, "../../../proc/self/memory.current": 1},
        None,
    ),
}


@pytest.mark.parametrize(("line", "files", "left"), GROUPS.values(), ids=GROUPS)
def test_the_limits_of_control_groups_are_read(line, files, left, tmp_path):
    assert memory.left_of_groups(machine(tmp_path, line, files)) == left


def test_control_groups_limit_the_available_memory(tmp_path, monkeypatch):
    assert memory.left_of_groups(tmp_path) is None
    monkeypatch.setattr(memory, "left_of_groups", lambda: 1000)
    assert memory.available() == 1000


def test_wrong_chunks_are_named():
    with pytest.raises(memes.UsageError, match="chunk must be at least 1, got 0"):
        run(chunk=0)
