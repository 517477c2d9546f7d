import importlib.metadata
import os
from collections import Counter

if importlib.metadata.version("jaxlib").startswith("0.10."):
    # The tests spend most of their time on compilation. XLA's new fusion emitters for CPUs double this
    # time, so they are disabled. Later versions have only the new emitters, so CI runs some tests with
    # them.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import memoization
import process_memory
import shapes

jax.config.update("jax_debug_key_reuse", True)
shapes.check()  # before memes is imported


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run all tests of a file in one worker, so that each shared program is compiled only once."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # pytest_collection_modifyitems has sorted the tests
    return LoadFileScheduling(config, log)


def pytest_collection_modifyitems(items):
    """Run the slowest test files first, so that no worker is idle at the end."""
    weights = Counter()
    for item in items:
        weights[item.path] += 10 if item.get_closest_marker("slow") else 1
    items.sort(key=lambda item: (-weights[item.path], item.path))


@pytest.fixture(scope="module")
def optimised():
    """Whether XLA compiles programs with all optimisations.

    The default is False, because XLA's optimisations would take most of the test time. Test files and
    folders override this default if they test exact numbers or if their programs run for a long time.
    """
    return False


@pytest.fixture(scope="module", autouse=True)
def _optimisations(optimised):
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", not optimised)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    process_memory.free()  # the next module needs other programs


@pytest.fixture(autouse=True)
def _within_memory():
    yield
    if process_memory.resident() > process_memory.LIMIT:
        process_memory.free()


@pytest.fixture(scope="module")
def no_figures():
    """Disable the figures at the end of a run, because drawing them is slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memes.analysis.end_of_run.save_figures", lambda run: [])
        yield


@pytest.fixture(scope="module")
def traced_once():
    """Share traced programs between runs of equal algorithms, and between commands with equal options.

    Yields the dictionary of shared programs. If a test clears it, programs are traced and compiled
    again.
    """
    with pytest.MonkeyPatch.context() as patch:
        found = memoization.programs(patch)
        process_memory.SHARED.append(found)
        yield found
        process_memory.SHARED.clear()


@pytest.fixture
def traced_anew(traced_once):
    """Share no programs with other tests. Tests that change compiled code need this fixture."""
    traced_once.clear()
    yield
    traced_once.clear()


@pytest.fixture(scope="module")
def compiled_once(traced_once, tmp_path_factory):
    """Share compiled programs between tests and processes, in addition to traced programs."""
    changed = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("cache")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in changed}
    for name, value in changed.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # the cache reads these settings only once
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
