#!/bin/bash
# optax.masked(adam, mask), meant to train some weights only, moves the others up their gradient.
#
# Guess: what the mask leaves out is not touched, so masked() freezes it; weights whose gradients are set to zero
#   before adamw stay too.
# Seen (optax 0.2.8, jax 0.10.2, CPU, 2026-11-30), 3 steps at a gradient of 0.5 from 1: masked(adam(0.1)) takes the
#   one weight to 0.70 and the frozen one to 2.50, because updates that are left out go through as they came, as the
#   plain gradient, which is then added. set_to_zero() in front of adamw leaves the decay, so the frozen one has 0.97.
#   partition() with set_to_zero(), or set_to_zero() at the end, leaves 1.
# Source: masked() in optax/transforms/_masking.py.
# Why it matters: the gradient is not scaled by the learning rate, so the layers that were to stay move most.
. "$(dirname "$0")/lib"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 scipy ml_dtypes opt_einsum absl-py typing-extensions
cat >"$work/freeze.py" <<'P'
import jax.numpy as jnp
import optax

start, gradient = ({"trained": jnp.array(x), "frozen": jnp.array(x)} for x in (1.0, 0.5))
trains, frozen = {"trained": True, "frozen": False}, {"trained": False, "frozen": True}
zero = optax.masked(optax.set_to_zero(), frozen)
for name, steps in (("masked", optax.masked(optax.adam(0.1), trains)),
                    ("zero first", optax.chain(zero, optax.adamw(0.1, weight_decay=0.1))),
                    ("zero last", optax.chain(optax.adamw(0.1, weight_decay=0.1), zero)),
                    ("partition", optax.partition({True: optax.adam(0.1), False: optax.set_to_zero()}, trains))):
    weights, state = start, steps.init(start)
    for _ in range(3):
        updates, state = steps.update(gradient, state, weights)
        weights = optax.apply_updates(weights, updates)
    print(name, *(f"{key} {weights[key]:.2f}" for key in trains))
P
JAX_PLATFORMS=cpu "$python" "$work/freeze.py" 2>/dev/null | expect "masked trained 0.70 frozen 2.50
zero first trained 0.67 frozen 0.97
zero last trained 0.67 frozen 1.00
partition trained 0.70 frozen 1.00"
