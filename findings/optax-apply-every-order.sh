#!/bin/bash
# optax.apply_every(4) accumulates for adam in neither order: in front of it weights move on every micro-batch.
#
# Guess: chain(apply_every(4), adam) adds up four gradients, then adam makes a step; behind adam it is nearly as good.
#   Between, weights stay.
# Seen (optax 0.2.8, jax 0.10.2, CPU, 2026-11-30), gradients of 1, adam(0.1), where each step of a large batch is 0.1:
#   MultiSteps moves by 0.10 at micro-batches 4 and 8. In front of adam, which gets zeros between, momentum goes on
#   moving at 5, 6 and 7, and the moments decay four times as fast; after 40 it has gone 1.86 in place of 1.00. Behind
#   adam the four steps are added, 0.40 at once. Its documentation says that a chain with it is "not necessarily
#   equivalent" to a larger batch.
# Source: apply_every() in optax/_src/transform.py.
. "$(dirname "$0")/lib"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 scipy ml_dtypes opt_einsum absl-py typing-extensions
cat >"$work/accumulate.py" <<'P'
import jax.numpy as jnp
import optax

adam, every = optax.adam(0.1), optax.apply_every(4)
for name, steps in (("MultiSteps", optax.MultiSteps(adam, 4)), ("in front", optax.chain(every, adam)),
                    ("behind", optax.chain(adam, every))):
    weight, moved = jnp.zeros(()), []
    state = steps.init(weight)
    for _ in range(40):
        updates, state = steps.update(jnp.ones(()), state, weight)
        weight = optax.apply_updates(weight, updates)
        moved.append("%.2f" % abs(weight))
    print(name, *moved[:8], "after 40:", moved[-1])
P
JAX_PLATFORMS=cpu "$python" "$work/accumulate.py" 2>/dev/null | expect "MultiSteps 0.00 0.00 0.00 0.10 0.10 0.10 0.10 0.20 after 40: 1.00
in front 0.00 0.00 0.00 0.06 0.11 0.15 0.19 0.24 after 40: 1.86
behind 0.00 0.00 0.00 0.40 0.40 0.40 0.40 0.80 after 40: 4.00"
