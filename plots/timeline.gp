# timeline.gp - Gantt charts of one training step, a panel a source (simulated, measured), a lane a rank.
#
# Set before: panels, span (common x range), time_unit, lanes_all, width_px, height_px, left_px (room for the names of lanes), crowded (1: bars too narrow for borders); of panel p: title_p, lanes_p, ytics_p (a command);
# num_kinds, kinds[], colours[]. shared (1: some backwards leave weight gradients out); $ops_p: start end lane colour share label, a row an op; lane 0 is rank 0.
key_px = GPVAL_TERM eq "dumb" ? 260.0 : 190.0; # a character is 10 pixels wide there
title_px = 38.0; axis_px = 42.0; label_px = 30.0
unit = (height_px - panels*(title_px + axis_px) - label_px)/(lanes_all*height_px)
set multiplot
if (crowded) { set style fill solid 1.0 noborder } else { set style fill solid 1.0 border rgb "#555555" }
set xrange [0:span*1.004]
set grid xtics noytics
set border 1
set lmargin at screen 1.0*left_px/width_px
set rmargin at screen 1 - key_px/width_px
unset key
at = 1.0
do for [p = 1:panels] {
    lanes = value(sprintf("lanes_%d", p))
    at = at - title_px/height_px
    set tmargin at screen at
    at = at - unit*lanes
    set bmargin at screen at
    at = at - axis_px/height_px
    set yrange [lanes-0.35:-0.65]
    eval value(sprintf("ytics_%d", p))
    set ytics scale 0
    set title value(sprintf("title_%d", p)) offset 0,-0.3 noenhanced
    if (p == panels) { set xlabel "time, ".time_unit offset 0,0.3 } else { unset xlabel }
    data = sprintf("$ops_%d", p)
    plot data using 1:3:1:2:($3-0.4):($3+0.4):4 with boxxyerror fc rgb variable lw 0.4 notitle, \
         for [k = 1:shared] data using ($5 > 0.005 ? $1 : NaN):3:1:2:($3+0.4-0.8*$5):($3+0.4) with boxxyerror fs transparent pattern 4 noborder fc rgb "#333333" notitle, \
         data using (($1+$2)/2):3:6 with labels notitle
}
# The key has a plot of its own, so that a low panel does not break it into columns.
set lmargin at screen 1 - (key_px - 10)/width_px
set rmargin at screen 0.999
set tmargin at screen 1 - title_px/height_px
set bmargin at screen 0
unset border
unset tics
unset grid
unset title
unset xlabel
set key inside left top
plot [0:1] [0:1] NaN notitle, \
     for [i = 1:num_kinds] keyentry with boxes fs solid fc rgb colours[i] title kinds[i], \
     for [i = 1:shared] keyentry with boxes fs pattern 4 fc rgb "#333333" title "share left out"
unset multiplot
