# losses.gp - a run on a cluster that loses nodes: $part_1 ... of "from to nodes", names of the parts, unit of time, what is counted.
set title title textcolor rgb ink
set xlabel sprintf("time, %s", unit)
set ylabel counted . " in use"
set yrange [0:*]
plot for [p = 1:parts] sprintf("$part_%d", p) using 1:(0):1:2:(0):3 with boxxyerror lt p title names[p]
