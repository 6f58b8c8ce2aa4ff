# error.gp - simulated against measured step time, one point a configuration, on the diagonal if they are equal.
#
# Set before: first, last (range of both axes, ms), wide (log axes), labels (count of points; 0: too many to name),
# heading, names[]. $points: real_ms sim_ms noise_ms number x y, a row a configuration; its number stands at x, y.
set title heading
set xlabel "measured step, ms"
set ylabel "simulated step, ms"
set xrange [first:last]
set yrange [first:last]
if (wide) {
    set logscale xy
    do for [p = -1:5] {
        set xtics add (sprintf("%g", 2*10.0**p) 2*10.0**p, sprintf("%g", 5*10.0**p) 5*10.0**p)
        set ytics add (sprintf("%g", 2*10.0**p) 2*10.0**p, sprintf("%g", 5*10.0**p) 5*10.0**p)
    }
}
set style fill solid 0.35 noborder
plot [first:last] "+" using 1:($1*0.95):($1*1.05) with filledcurves lc rgb "#9CC4E0" title "within 5 %", \
     x with lines lc rgb ink lw 1 title "equal", \
     $points using 1:2:3 with xerrorbars lt 1 pt 7 ps 0.7 lw 1 title "configuration, noise", \
     $points using 5:6:4 with labels center tc rgb ink notitle, \
     for [i = 1:labels] keyentry with points pt 7 ps 0 title sprintf("%d  %s", i, names[i]) noenhanced
