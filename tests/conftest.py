import jax

jax.config.update("jax_debug_key_reuse", True)
