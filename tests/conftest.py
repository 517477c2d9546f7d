import jax
import pytest

jax.config.update("jax_debug_key_reuse", True)

# Where the numbers of optimised programs are what is tested; elsewhere most time would go into them.
OPTIMISED = ("physics", "tasks", "test_memory", "test_loop", "test_baselines", "test_novelty")


@pytest.fixture(scope="module", autouse=True)
def _optimisations(request):
    before = jax.config.values["jax_disable_most_optimizations"]
    optimised = {*request.path.parts, request.path.stem} & set(OPTIMISED)
    jax.config.update("jax_disable_most_optimizations", not optimised)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
