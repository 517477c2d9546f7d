"""A task whose features are its genotype, for tests of what is drawn."""

import memes


def box(k):
    """Return the task of k features in the unit cube; the first one is the fitness, too."""
    return memes.Task(
        name="box",
        dim=k,
        feature_low=(0.0,) * k,
        feature_high=(1.0,) * k,
        init=memes.uniform(k, 0.0, 1.0),
        evaluate=lambda keys, x: (x[:, 0], x),
    )
