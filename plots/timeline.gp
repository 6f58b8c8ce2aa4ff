# timeline.gp - Gantt charts of one training step, one panel a source (simulated above real).
#
# Set before: panels (1 or 2), title_1, title_2, ranks (lanes), span_ms (common x range).
# $ops_1, $ops_2: start_ms end_ms lane colour label, a row an op; lane 0 is rank 0.
# $names: lane "label".
set multiplot layout panels,1 margins 0.08,0.87,0.11,0.93 spacing 0,0.13
set style fill solid 1.0 border rgb "#404040"
set xrange [0:span_ms*1.005]
set yrange [ranks-0.4:-0.6]
set ytics 1 scale 0 format "rank %g"
set xtics out nomirror
set grid xtics lc rgb "#dddddd"
set border 1
set key at screen 0.99, screen 0.93 right top samplen 1 spacing 1.1
do for [p = 1:panels] {
    set title (p == 1 ? title_1 : title_2) offset 0,-0.6
    if (p == panels) { set xlabel "ms" } else { unset xlabel }
    if (p == 1) {
        plot $ops_1 using 1:3:1:2:($3-0.38):($3+0.38):4 with boxxyerror fc rgb variable lw 0.4 notitle, \
             $ops_1 using (($1+$2)/2):3:5 with labels font ",9" notitle, \
             for [i = 1:words(kinds)] keyentry with boxes fs solid fc rgb word(colours, i) title word(kinds, i)
        unset key
    } else {
        plot $ops_2 using 1:3:1:2:($3-0.38):($3+0.38):4 with boxxyerror fc rgb variable lw 0.4 notitle, \
             $ops_2 using (($1+$2)/2):3:5 with labels font ",9" notitle
    }
}
unset multiplot
