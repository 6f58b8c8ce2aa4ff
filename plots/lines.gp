# lines.gp - lines of several series over a number.
#
# Set before: series (count), titles[], types[] and dashes[] (line and dash type), heading,
# x_label, y_label, log_x and log_y (0 or 1), how ("linespoints", "steps"), limit and
# limit_name (a level; limit 0: none), ideal (slope of a line through the origin; 0: none).
# stopped (0 or 1) may be set, with $stopped: x y of points whose search was cut short.
# $s_i: x y, a row a point. Named ticks of x may be set before by a command.
set title heading noenhanced
set xlabel x_label noenhanced
set ylabel y_label noenhanced
if (log_y) { set logscale y 2 } else { set yrange [0:*] }
if (log_x) { set logscale x 2 }
if (how ne "steps" && !log_y) { set offsets graph 0.02, graph 0.02, graph 0.06, 0 }
array drawn[3]
drawn[1] = limit > 0 ? 1 : 0
drawn[2] = ideal > 0 ? 1 : 0
drawn[3] = exists("stopped") ? stopped : 0
if (how eq "steps") {
    plot for [i = 1:series] sprintf("$s_%d", i) using 1:2 with lines lt types[i] dt dashes[i] title titles[i] noenhanced, \
         for [i = 1:drawn[1]] limit with lines lc rgb ink lw 1.5 dt 2 title limit_name noenhanced
} else {
    plot for [i = 1:series] sprintf("$s_%d", i) using 1:2 with linespoints lt types[i] dt dashes[i] title titles[i] noenhanced, \
         for [i = 1:drawn[1]] limit with lines lc rgb ink lw 1.5 dt 2 title limit_name noenhanced, \
         for [i = 1:drawn[2]] ideal*x with lines lc rgb faint lw 1.5 dt 2 title "ideal: all at the best rate", \
         for [i = 1:drawn[3]] $stopped using 1:2 with points pt 6 ps 2 lw 1.5 lc rgb ink title "search stopped"
}
