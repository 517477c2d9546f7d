"""Kernels compile for all GPU architectures that JAX supports, and GPU programs call these kernels."""

import shutil
import subprocess
from importlib import resources

import jax
import jax.numpy as jnp
import pytest

from memes.control import mlp
from memes.control.mlp_kernels import TILINGS, Network, drawn, policy_kernel
from memes.control.perturbations import Pairs, Repeats, rounded, scaled
from memes.emitters.td3 import TD3
from memes.emitters.training import training_kernel
from memes.kernels import cuda, cxx, dispatch, neighbours
from memes.kernels.cxx import compiler
from memes.physics.cuda_backend import step_kernel
from memes.physics.reading import load, read
from memes.physics.solver import Fidelity
from memes.physics.stacking import stacked
from memes.strategies.noise import Gaussian, LowRank

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture(scope="module")
def kernels():
    """Kernels for physics steps, nearest-neighbour searches, policies, and training.

    The physics kernels simulate two robots. Only one robot has a number of legs that is a power of two.
    """
    models = (
        resources.files("memes.tasks") / "models" / f"{name}.xml" for name in ("ant_trap", "hexapod")
    )
    steps = [step_kernel(stacked(read(load(str(path)))), Fidelity(4, 2), 5) for path in models]
    searches = [neighbours.search_kernel(2, 10, 4), neighbours.search_kernel(6, 40, 1)]
    return [
        *steps,
        *searches,
        *(policy_of(POLICY, draw) for draw in (Gaussian(), LowRank(4, POLICY.blocks))),
        policy_of(POLICY, Gaussian(), "bfloat16"),
        training_kernel(POLICY.network, TD3())[0],
    ]


POLICY = mlp((27, 64, 64, 8))


def policy_of(controller, draw, dtype="float32"):
    network = Network((27, 64, 64, 8), jax.nn.relu, jnp.tanh)
    samples = pairs_of(controller, draw)
    samples = samples._replace(step=rounded(samples.step, dtype))
    step, ranks = drawn(network, samples)
    return policy_kernel(network, ranks, step.shape[-1], step.dtype, TILINGS[step.dtype.name])


def pairs_of(controller, draw):
    key = jax.random.key(0)
    return Pairs(jnp.zeros((2, controller.dim)), scaled(draw(key, (2, 3, controller.dim)), 0.1))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_for_every_architecture(kernels, tmp_path, architecture):
    for i, kernel in enumerate(kernels):
        file, out = tmp_path / f"{i}.cu", tmp_path / f"{i}.cubin"
        file.write_text(kernel.source)
        command = [
            "nvcc",
            "-std=c++17",
            f"-arch={architecture}",
            "-cubin",
            "-w",
            str(file),
            "-o",
            str(out),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert kernel.name.encode() in out.read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(cuda.nvrtc() is None, reason="there is no NVRTC")
def test_kernels_compile_by_nvrtc(kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for kernel in kernels:
        assert kernel.name.encode() in cuda.compiled(kernel.source, ["9.0"])
        assert b".target sm_80" in cuda.compiled(
            kernel.source, ["8.0", "9.0"]
        )  # PTX for 8.0 also runs on 9.0
    assert len(list(tmp_path.rglob("*.cubin"))) == 2 * len(kernels)


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_the_handler_is_registered_with_jax():
    assert cuda._handler().load  # builds and registers the handler; CUDA is not needed


def test_programs_for_gpus_launch_the_kernel_and_others_do_not():
    search = jax.jit(lambda q, p: neighbours.nearest(q, p, 10))
    traced = search.trace(jnp.zeros((64, 2)), jnp.zeros((1000, 2)))
    assert cuda.TARGET in traced.lower(lowering_platforms=("cuda",)).as_text()
    assert cuda.TARGET not in traced.lower(lowering_platforms=("cpu",)).as_text()
    mapped = jax.jit(jax.vmap(search)).trace(jnp.zeros((3, 64, 2)), jnp.zeros((3, 1000, 2)))
    assert "tensor<3x64x10xf32>" in mapped.lower(lowering_platforms=("cuda",)).as_text()


def policy_program(platform, lanes=2, repeats=1):
    """Return the program of a policy as text."""

    def act(observation):
        samples = jax.tree.map(lambda leaf: leaf[:lanes], pairs_of(POLICY, Gaussian()))
        return POLICY.in_factors(Repeats(jnp.zeros((1, POLICY.dim)), repeats), samples)(observation, 0)

    traced = jax.jit(act).trace(jnp.zeros((repeats + 6 * lanes, 27)))
    return traced.lower(lowering_platforms=(platform,)).as_text()


def test_policies_of_pairs_are_a_kernel_on_gpus_and_native_code_on_cpus(monkeypatch):
    assert cuda.TARGET in policy_program("cuda")
    assert cuda.TARGET not in policy_program("cpu")
    assert ("memes_Policies" in policy_program("cpu")) == (compiler() is not None)
    assert cuda.TARGET not in policy_program("cuda", lanes=0)
    assert cuda.TARGET in policy_program("cuda", lanes=0, repeats=4)
    monkeypatch.setattr(dispatch, "runs_cpp", lambda: False)
    assert "memes_Policies" not in policy_program("cpu")


def test_without_nvrtc_the_search_runs_in_xla_with_a_warning(monkeypatch):
    monkeypatch.setattr(cuda, "missing", lambda: "NVRTC is not found")
    cuda._warn_once.cache_clear()
    search = jax.jit(lambda q, p: neighbours.nearest(q, p, 10))
    with pytest.warns(UserWarning, match="runs in plain XLA.*NVRTC is not found"):
        traced = search.trace(jnp.zeros((64, 2)), jnp.zeros((1000, 2)))
    assert cuda.TARGET not in traced.lower(lowering_platforms=("cuda",)).as_text()


def test_a_long_compilation_is_announced_once(monkeypatch, capfd, tmp_path):
    if compiler() is None:
        pytest.skip("there is no C++ compiler")
    monkeypatch.setattr(cxx, "LINES_PER_SECOND", 0.04)
    source = f'// {tmp_path}\n\nextern "C" int seven() {{ return 7; }}\n'
    for printed in ("compiling the test takes about 75 s; the result is cached\n", ""):
        assert cxx.loaded(source, "the test").seven() == 7
        assert capfd.readouterr().err == printed
