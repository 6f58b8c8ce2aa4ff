# curves.gp - one curve a run over the step number: loss, learning rate, step time.
#
# Set before: runs (count), names[], what (y label), heading, smooth and changes (0 or 1).
# $run_r: step value mean, a row a step. Arrows and labels mark changes of plan.
set title heading noenhanced
set xlabel "step"
set ylabel what
if (changes) { set tmargin 6; set title offset 0,2.2 }
plot for [r = 1:(smooth ? runs : 0)] sprintf("$run_%d", r) using 1:2 with lines lt r lw 0.5 notitle, \
     for [r = 1:runs] sprintf("$run_%d", r) using 1:3 with lines lt r title names[r] noenhanced
