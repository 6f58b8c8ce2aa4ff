# bars.gp - one bar a name, with its value.
#
# Set before: heading, y_label, count, line (a level to compare with) and line_name.
# $bars: place value "name" "label" colour, a row a bar.
set title heading noenhanced
set ylabel y_label noenhanced
set yrange [0:*]
set xrange [-0.7:count-0.3]
set boxwidth 0.65
set bmargin 4
set grid noxtics ytics
set xtics scale 0
set offsets 0, 0, graph 0.08, 0
plot $bars using 1:2:5:xticlabels(3) with boxes lc rgb variable notitle, \
     $bars using 1:2:4 with labels offset 0,0.7 tc rgb ink notitle noenhanced, \
     line with lines lc rgb ink lw 1.5 dt 2 title line_name
