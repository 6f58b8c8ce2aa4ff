#!/bin/bash
# XLA's cost analysis counts a scan over 24 layers as one layer.
#
# Guess: jax.jit(f).lower(x).cost_analysis()["flops"], before or after compilation, is what f computes, written as a
#   loop or not.
# Seen (jax 0.10.2, CPU, 2026-11-30), 24 layers of one product each: a Python loop has the FLOPs of 24 products,
#   lax.scan() those of 1; with unroll=4 of 4. Forward and backward have 71 products in a loop and 3 in a scan. XLA
#   knows the trip count: it stands in the compiled module.
# Source: HandleWhile in xla/service/hlo_cost_analysis.cc: the sum of one condition and one body.
# Why it matters: where layers are stacked for scan, to compile fast, an MFU taken from it falls with depth.
. "$(dirname "$0")/lib"
packages jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 scipy ml_dtypes opt_einsum typing-extensions
cat >"$work/cost.py" <<'P'
import jax
from jax import lax, numpy as jnp

def layer(x, weight):
    return x @ weight, None

def loop(weights, x):
    for weight in weights:
        x, _ = layer(x, weight)
    return x.sum()

def scan(unroll):
    return lambda weights, x: lax.scan(layer, x, weights, unroll=unroll)[0].sum()

stack, x = jnp.ones((24, 64, 64)), jnp.ones((8, 64))
product = 2 * 8 * 64 * 64
for name, f, weights in (("loop", loop, list(stack)), ("scan", scan(1), stack), ("scan, unroll=4", scan(4), stack)):
    found = []
    for g in f, jax.value_and_grad(f):
        lowered = jax.jit(g).lower(weights, x)
        found += [a["flops"] / product for a in (lowered.cost_analysis(), lowered.compile().cost_analysis())]
    print(name, *("%.0f" % products for products in found), "products")
P
JAX_PLATFORMS=cpu "$python" "$work/cost.py" 2>/dev/null | expect "loop 24 24 71 71 products
scan 1 1 3 3 products
scan, unroll=4 4 4 12 12 products"
