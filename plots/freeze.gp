# freeze.gp - which layers are frozen in each epoch, and the gradient norms of the others.
#
# Set before: heading, epochs, layers, norms (1: there are norms),
# shared (1: $shares has some).
# $shares: epoch layer share of the weight gradients that is left out. $cells: epoch layer colour, a row a layer and epoch. $prefix: epoch frozen, two rows an epoch.
set title heading noenhanced
set xlabel "epoch"
set ylabel "layer"
set xrange [0:epochs]
set yrange [0:layers]
unset grid
set style fill solid 1.0 border rgb "white"
plot $cells using ($1+0.5):($2+0.5):1:($1+1):2:($2+1):3 with boxxyerror fc rgb variable lw 0.5 notitle, \
     for [k = 1:shared] $shares using ($1+0.5):2:1:($1+1):2:($2+$3) with boxxyerror fs transparent pattern 4 noborder fc rgb "#333333" notitle, \
     $prefix using 1:2 with lines lc rgb "#D55E00" lw 3 title "frozen prefix F", \
     keyentry with boxes fc rgb "#D0D0D0" title "frozen", \
     keyentry with boxes fc rgb (norms ? "#08519C" : "#9ECAE1") title (norms ? "large gradient norm" : "trained"), \
     keyentry with boxes fc rgb (norms ? "#DEEBF7" : "white") title (norms ? "small gradient norm" : ""), \
     for [k = 1:shared] keyentry with boxes fs pattern 4 fc rgb "#333333" title "share left out"
