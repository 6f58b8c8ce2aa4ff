# partition.gp - what each stage of a cut holds and how long its passes take for one micro-batch.
#
# Set before: heading, unit (of time), mean (of all stages, in that unit), stages.
# $stages: stage forward backward "label", a row a stage.
set title heading noenhanced
set xlabel "stage, its items and its trainable parameters" offset 0,-2.0
set bmargin 7.5
set ylabel "time of one micro-batch, ".unit
set yrange [0:*]
set xrange [-0.6:stages-0.4]
set boxwidth 0.7
set grid noxtics ytics
set xtics 1 scale 0
plot $stages using 1:($2+$3):xticlabels(4) with boxes lc rgb "#009E73" title "backward", \
     $stages using 1:2 with boxes lc rgb "#56B4E9" title "forward", \
     mean with lines lc rgb ink lw 1.5 dt 2 title "mean of the stages"
