# curves.gp - one curve a run over the step number: loss, throughput, learning rate, ...
#
# Set before: runs (count), names (a word a run), what (y label), key_on, log_y (0 or 1).
# $run_1, $run_2, ...: step value; a row a step.
set xlabel "step"
set ylabel what
set grid lc rgb "#dddddd"
set border 3
set xtics nomirror
set ytics nomirror
if (log_y) { set logscale y }
if (key_on) { set key top right } else { unset key }
plot for [r = 1:runs] sprintf("$run_%d", r) using 1:2 with lines lw 1.5 lc r title word(names, r)
