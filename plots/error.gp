# error.gp - simulated against measured step time, one point a configuration, on the diagonal if they are equal.
#
# Set before: top_ms, low_ms, wide (log axes), labels (count of points; 0: too many to name), heading, names[].
# $points: real_ms sim_ms noise_ms number, a row a configuration.
set title heading
set xlabel "measured step, ms"
set ylabel "simulated step, ms"
first = wide ? low_ms/1.4 : 0
last = wide ? top_ms*1.6 : top_ms*1.12
set xrange [first:last]
set yrange [first:last]
if (wide) { set logscale xy }
set style fill solid 0.35 noborder
plot [first:last] "+" using 1:($1*0.95):($1*1.05) with filledcurves lc rgb "#C6DCEC" title "within 5 %", \
     x with lines lc rgb ink lw 1 title "equal", \
     $points using 1:2:3 with xerrorbars lt 1 pt 7 ps 0.7 lw 1 title "configuration, noise", \
     $points using 1:2:4 with labels left offset 0.6,-0.5 font ",9" tc rgb ink notitle, \
     for [i = 1:labels] keyentry with points pt 7 ps 0 title sprintf("%d  %s", i, names[i]) noenhanced
