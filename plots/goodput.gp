# goodput.gp - share of useful time by the interval between checkpoints: $points, best, young, daly (s; 0: none), unit.
set title title textcolor rgb ink
set logscale x
set xlabel "interval between checkpoints, s"
set ylabel "useful time, %"
set arrow 1 from best, graph 0 to best, graph 1 nohead lt 2 lw 1 dt 3
set label 1 "best" at best, graph 0.04 textcolor lt 2 offset 0.5,0
if (young > 0) set arrow 2 from young, graph 0 to young, graph 1 nohead lt 3 lw 1 dt 3
if (young > 0) set label 2 "Young" at young, graph 0.10 textcolor lt 3 offset 0.5,0
if (daly > 0) set arrow 3 from daly, graph 0 to daly, graph 1 nohead lt 4 lw 1 dt 3
if (daly > 0) set label 3 "Daly" at daly, graph 0.16 textcolor lt 4 offset 0.5,0
plot $points using 1:2 with linespoints lt 1 notitle
