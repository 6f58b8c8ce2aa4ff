# throughput.gp - samples or tokens per second by epoch, with the plan of each epoch at its change.
#
# Set before: runs (count), names[], points (0 or 1), top (highest level), epochs (count), level (the
# rate of the best static plan; 0: none is drawn), y_label.
# $steps_r: epoch rate, a row a step. $levels_r: epoch rate, two rows an epoch.
# $changes_r: epoch place "label"; labels that would cover others are raised or left out.
set title "training throughput by epoch; labels: F frozen layers, pipelines of K ranks, R pipelines"
set xlabel "epoch"
set ylabel y_label
set yrange [0:top*1.5]
set samples 2
plot [0:epochs] for [i = 1:(level > 0)] level with lines lt runs+1 dt 2 lw 2 title "best static plan, nothing freezes", \
     for [r = 1:(points ? runs : 0)] sprintf("$steps_%d", r) using 1:2 with points lt r pt 7 ps 0.25 notitle, \
     for [r = 1:runs] sprintf("$levels_%d", r) using 1:2 with lines lt r lw 3 title names[r] noenhanced, \
     for [r = 1:runs] sprintf("$changes_%d", r) using 1:2:3 with labels left rotate by 60 offset (GPVAL_TERM eq "dumb" ? 1 : 0.3),0.7 tc lt r notitle noenhanced
