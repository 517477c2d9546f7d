import os
import tempfile

import jax
import pytest

jax.config.update("jax_debug_key_reuse", True)

# Many tests compile the same programs, in every worker: they share them for as long as the tests run.
if "MEMES_TESTS_CACHE" not in os.environ:  # in the process that starts the workers
    cache = tempfile.TemporaryDirectory(prefix="memes-tests-")
    os.environ["MEMES_TESTS_CACHE"] = cache.name
jax.config.update("jax_compilation_cache_dir", os.environ["MEMES_TESTS_CACHE"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)

# Where the numbers of optimised programs are what is tested; elsewhere most time would go into them.
OPTIMISED = ("physics", "tasks", "test_memory", "test_loop", "test_baselines", "test_novelty")


@pytest.fixture(scope="module", autouse=True)
def _optimisations(request):
    before = jax.config.values["jax_disable_most_optimizations"]
    optimised = {*request.path.parts, request.path.stem} & set(OPTIMISED)
    jax.config.update("jax_disable_most_optimizations", not optimised)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
