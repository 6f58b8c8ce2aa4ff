#!/usr/bin/env python3
"""The answer of `elapse compare --matrix --json` as a table: compare_table.py compare.json"""
import json
import sys

with open(sys.argv[1]) as file:
    answer = json.load(file)
print(f"{'M':>4} {'size':>5} {'recompute':<12} {'F':>3} {'cache':<6} {'real ms':>10} {'simulated':>10} {'error':>8}")
for one in answer.get("configs", []):
    real, sim, error = one.get("real_step_ns"), one.get("sim_step_ns"), one.get("error")
    number = lambda x, scale, form: format(x / scale, form) if isinstance(x, (int, float)) else "-"
    print(f"{one.get('microbatches', '-'):>4} {one['batch'] // one['microbatches'] if one.get('microbatches') else '-':>5} {one.get('recompute', '-'):<12} "
          f"{one.get('frozen_layers', '-'):>3} {'on' if one.get('cached') else 'off':<6} {number(real, 1e6, '10.3f'):>10} "
          f"{number(sim, 1e6, '10.3f'):>10} {number(error, 0.01, '+7.1f'):>7}%")
for key in ("median_abs_error", "worst_abs_error"):
    if isinstance(answer.get(key), (int, float)):
        print(f"{key.replace('_', ' ')}: {100 * answer[key]:.1f} %")
    else:
        print(f"{key.replace('_', ' ')}: none given ({answer.get('noisy_configs', 0)} configurations are noisy)")
