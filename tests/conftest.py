import importlib.metadata
import os
from collections import Counter

if importlib.metadata.version("jaxlib").startswith("0.10."):
    # Compiling takes most of the tests' time, and twice as long with the new emitters of code for CPUs.
    # Later versions have no others: with them a part of the tests runs in CI.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import freeing
import remembering
import shapes

jax.config.update("jax_debug_key_reuse", True)
shapes.check()  # before memes is imported


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give all tests of a file to one worker, which compiles what they share once."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # they are in order, below
    return LoadFileScheduling(config, log)


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that no worker waits for another at the end."""
    weights = Counter()
    for item in items:
        weights[item.path] += 10 if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: (-weights[item.path], item.path))


@pytest.fixture(scope="module")
def optimised():
    """Whether programs are compiled as for use: where their numbers are tested, or where they run long.

    Elsewhere most of the time would go into it. Folders and files say so by a fixture of this name.
    """
    return False


@pytest.fixture(scope="module", autouse=True)
def _optimisations(optimised):
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", not optimised)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    freeing.free()  # programs of one module are of no use to the next


@pytest.fixture(autouse=True)
def _within_memory():
    yield
    if freeing.resident() > freeing.MOST:
        freeing.free()


@pytest.fixture(scope="module")
def no_figures():
    """Where they are of no concern: they are slow to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memes.analysis.end_of_run.save_figures", lambda run: [])
        yield


@pytest.fixture(scope="module")
def traced_once():
    """Runs of the same algorithm, and commands with the same options, share their programs.

    Yields what they share: who clears it has it traced and compiled anew.
    """
    with pytest.MonkeyPatch.context() as patch:
        found = remembering.programs(patch)
        freeing.SHARED.append(found)
        yield found
        freeing.SHARED.clear()


@pytest.fixture
def traced_anew(traced_once):
    """Runs share nothing with those before and after, because something that is compiled differs."""
    traced_once.clear()
    yield
    traced_once.clear()


@pytest.fixture(scope="module")
def compiled_once(traced_once, tmp_path_factory):
    """Runs of equal algorithms, and processes, share what is compiled too."""
    changed = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("cache")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in changed}
    for name, value in changed.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # it looks at these settings only once
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
