import pytest


@pytest.fixture(scope="module")
def optimised():
    return True
