# error.gp - simulated against measured step time, one point a configuration, and the diagonal.
#
# Set before: top_ms, median (text). $points: real_ms sim_ms label, a row a configuration.
set xlabel "measured step, ms"
set ylabel "simulated step, ms"
set xrange [0:top_ms]
set yrange [0:top_ms]
set grid lc rgb "#dddddd"
set border 3
set xtics nomirror
set ytics nomirror
set key top left
plot x with lines lc rgb "#404040" title "equal", \
     1.1*x with lines dt 2 lc rgb "#a0a0a0" title "10 % off", 0.9*x with lines dt 2 lc rgb "#a0a0a0" notitle, \
     $points using 1:2 with points pt 7 ps 0.7 lc rgb "#1f77b4" title median, \
     $points using 1:2:3 with labels left offset 0.7,0 font ",8" notitle
