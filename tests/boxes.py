"""A task whose feature equals its genotype, for tests of figures and videos."""

import memes


def box(k):
    """Return a task with k features in the unit cube. The fitness equals the first feature."""
    return memes.Task(
        name="box",
        dim=k,
        feature_low=(0.0,) * k,
        feature_high=(1.0,) * k,
        init=memes.uniform(k, 0.0, 1.0),
        evaluate=lambda keys, x: (x[:, 0], x),
    )
