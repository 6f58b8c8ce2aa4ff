# breakdown.gp - training time by switch, measured beside simulated.
#
# Set before: data (rows "name" measured simulated), figure (.svg), name.
set terminal svg size 900,420 background rgb "white"
set output figure
set title name . ": ten epochs, alpha 1/3"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.85 border -1
set ylabel "training, seconds"
set yrange [0:*]
set grid y lc rgb "#dddddd"
set border 3
set xtics nomirror
set ytics nomirror
set key top right
plot data using 2:xtic(1) title "measured" lc rgb "#2c6fbb", "" using 3 title "simulated" lc rgb "#e0a030"
