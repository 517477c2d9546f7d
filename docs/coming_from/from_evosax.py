"""Minimise the sphere function with CMA-ES from evosax."""

import jax
import jax.numpy as jnp
from evosax.algorithms import CMA_ES

strategy = CMA_ES(population_size=64, solution=jnp.zeros(20))
params = strategy.default_params
key = jax.random.key(0)
state = strategy.init(key, jnp.zeros(20), params)
for generation in range(100):
    ask_key, tell_key = jax.random.split(jax.random.fold_in(key, generation))
    x, state = strategy.ask(ask_key, state, params)
    state, metrics = strategy.tell(tell_key, x, jnp.sum((x - 0.5) ** 2, axis=1), state, params)

print(f"best fitness {-float(state.best_fitness):.4f}")
