import jax
import jax.numpy as jnp
import numpy as np

from memes.task import evaluate
from memes.tasks import point_maze
from memes.tasks.point_maze import BACK, HIGH, LOW, SIDES, START, STRIDE, move


def crosses_a_wall(start, end):
    """Return whether a path of a thousand small steps along one axis crosses a wall."""
    path = start + np.linspace(0, 1, 1001)[:, None] * (end - start)
    signs = [(path[:, 0] > x, (path[:, 1] >= low) & (path[:, 1] <= high)) for x, low, high in BACK]
    signs += [(path[:, 1] > y, (path[:, 0] >= low) & (path[:, 0] <= high)) for y, low, high in SIDES]
    return any(beyond[0] != beyond[-1] and within.all() for beyond, within in signs)


def test_moves_go_along_x_then_y_and_stop_at_walls():
    rng = np.random.default_rng(0)
    near = np.array([0.5, 0.0]) + rng.uniform(-0.3, 0.3, (3000, 2))
    action = rng.uniform(-1.5, 1.5, (3000, 2))
    moved = np.asarray(move(jnp.asarray(near, jnp.float32), jnp.asarray(action, jnp.float32)))
    stopped = 0
    for here, there, a in zip(near, moved, action, strict=True):
        place = here.copy()
        for axis in (0, 1):
            wanted = place.copy()
            wanted[axis] = np.clip(place[axis] + STRIDE * np.clip(a[axis], -1, 1), LOW[axis], HIGH[axis])
            stopped += crosses_a_wall(place, wanted)
            if not crosses_a_wall(place, wanted):
                place = wanted
        np.testing.assert_allclose(there, place, atol=1e-6)
    assert stopped > 50


def test_the_point_stays_inside_the_bounds():
    corners = jnp.array([LOW, HIGH, (LOW[0], HIGH[1])])
    np.testing.assert_allclose(move(corners, jnp.array([[-1, -1], [1, 1], [-1, 1.0]])), corners)


def test_the_map_shows_the_walls_that_stop_the_point():
    """The point moves towards the middle of each wall, from both sides."""
    place = point_maze().map
    assert len(place.walls) == len(BACK) + len(SIDES)
    for corners in np.array(place.walls):
        along = (corners[1] - corners[0]) / np.linalg.norm(corners[1] - corners[0])
        across, middle = along[::-1], corners.mean(axis=0)
        for side in (1, -1):
            start = jnp.asarray(middle + side * 0.5 * STRIDE * across, jnp.float32)[None]
            end = move(start, jnp.asarray(-side * across)[None])
            np.testing.assert_allclose(end, start, atol=1e-7)
    assert place.start == START


def test_fitness_is_the_progress_and_the_feature_the_final_position():
    task = point_maze(steps=40)
    result = evaluate(task, jax.random.split(jax.random.key(0), 30), task.init(jax.random.key(1), 30))
    np.testing.assert_allclose(result.fitness, result.feature[:, 0] - START[0], atol=1e-5)
    assert np.min(result.fitness) >= task.min_fitness
    assert np.ptp(result.feature, axis=0).min() > 0.2


def test_moving_straight_ahead_ends_in_the_cup_and_moving_around_does_not():
    def end_of(actions):
        place = jnp.array([START])
        for action in actions:
            place = move(place, jnp.array([action]))
        return np.asarray(place[0])

    straight = end_of([(1.0, 0.0)] * 100)
    around = end_of([(0.0, 1.0)] * 20 + [(1.0, 0.0)] * 80)
    assert BACK[0][0] - STRIDE <= straight[0] <= BACK[0][0]
    assert around[0] == HIGH[0]


def test_the_uncertain_version_has_random_starts():
    for uncertain in (True, False):
        task = point_maze(steps=5, uncertain=uncertain)
        x = jnp.repeat(task.init(jax.random.key(0), 1), 8, axis=0)
        feature = evaluate(task, jax.random.split(jax.random.key(1), 8), x).feature
        assert len(np.unique(np.asarray(feature), axis=0)) == (8 if uncertain else 1)
