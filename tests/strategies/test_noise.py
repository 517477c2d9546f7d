import jax
import numpy as np
import pytest

import memes
from memes.control.perturbations import entries
from memes.errors import UsageError
from memes.strategies.noise import LowRank

BLOCKS = ((6, 8), (1, 5), (10, 7))
DIM = sum(rows * columns for rows, columns in BLOCKS)


def drawn(rank, n=4096, blocks=BLOCKS, dim=DIM):
    draw = jax.jit(LowRank(rank, blocks), static_argnums=1)
    return np.asarray(entries(draw(jax.random.key(0), (n, dim))))[:, :dim]


def test_every_matrix_has_the_rank_unless_it_is_too_small():
    noise = drawn(2, n=3)
    for row in noise:
        assert np.linalg.matrix_rank(row[:48].reshape(6, 8), tol=1e-4) == 2
        assert np.linalg.matrix_rank(row[53:].reshape(10, 7), tol=1e-4) == 2


@pytest.mark.parametrize("rank", [1, 3])
def test_entries_have_mean_0_variance_1_and_are_uncorrelated(rank):
    noise = drawn(rank, n=20_000)
    np.testing.assert_allclose(noise.mean(axis=0), np.zeros(DIM), atol=0.05)
    np.testing.assert_allclose(np.cov(noise.T), np.eye(DIM), atol=0.12)


def test_without_blocks_noise_is_one_nearly_square_matrix():
    noise = drawn(1, n=2, blocks=None, dim=50)  # a matrix of 7 x 8, whose last entries are unused
    for row in noise:
        assert np.linalg.matrix_rank(row[:48].reshape(6, 8), tol=1e-4) == 1


def test_blocks_of_another_size_and_wrong_options_are_refused():
    with pytest.raises(UsageError, match="blocks must have 99 entries"):
        drawn(1, dim=99)
    with pytest.raises(UsageError, match="rank must be at least 1"):
        LowRank(0)
    with pytest.raises(UsageError, match="noise must be one of gaussian, low-rank or Noise"):
        memes.presets.memes(memes.tasks.arm(joints=4), noise="white")


def test_the_blocks_of_policies_have_the_size_of_a_genotype():
    controller = memes.tasks.point_maze().control.controller
    assert sum(rows * columns for rows, columns in controller.blocks) == controller.dim
    memes.presets.memes(memes.tasks.point_maze(), noise="low-rank", rank=1)
