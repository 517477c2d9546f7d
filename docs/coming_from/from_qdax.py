"""Run MAP-Elites from QDax on the sphere function."""

import functools

import jax
import jax.numpy as jnp
from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
from qdax.core.emitters.mutation_operators import isoline_variation
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites
from qdax.utils.metrics import default_qd_metrics


def scoring(x, key):
    """Return the fitness and the feature of each genotype, and an empty dictionary of extra scores."""
    feature = jnp.stack([x[:, :10].mean(axis=1), x[:, 10:].mean(axis=1)], axis=1)
    return -jnp.sum((x - 0.5) ** 2, axis=1), feature, {}


variation = functools.partial(isoline_variation, iso_sigma=0.01, line_sigma=0.1)
emitter = MixingEmitter(None, variation, variation_percentage=1.0, batch_size=256)
search = MAPElites(scoring, emitter, functools.partial(default_qd_metrics, qd_offset=50.0))
centroids = compute_euclidean_centroids((50, 50), (-1.0, -1.0), (1.0, 1.0))
key, first_key, init_key = jax.random.split(jax.random.key(0), 3)
x = jax.random.uniform(first_key, (256, 20), minval=-1.0)
repertoire, state, _ = search.init(x, centroids, init_key)
(repertoire, state, key), metrics = jax.lax.scan(
    search.scan_update, (repertoire, state, key), length=400
)

print(f"coverage {float(metrics['coverage'][-1]):.1f}%")
