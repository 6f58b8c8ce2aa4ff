# heat.gp - a matrix of values as colours, with the value in each cell where there is room.
#
# Set before: heading, x_label, y_label, unit, columns, rows, low (where the colours begin), middle (from here on labels are white), labels (0 or 1), flip (1: row 0 is on top).
# $cells: column row value "label". Ticks are set before by commands.
set title heading noenhanced
set xlabel x_label noenhanced
set ylabel y_label noenhanced
set cblabel unit noenhanced offset 1,0
set rmargin 12
set xrange [-0.5:columns-0.5]
if (flip) { set yrange [rows-0.5:-0.5] } else { set yrange [-0.5:rows-0.5] }
set palette defined (0 "#F7FBFF", 0.5 "#6BAED6", 1 "#08306B")
set cbrange [low:*]
unset grid
unset key
set border 0
plot $cells using 1:2:3 with image pixels, \
     $cells using 1:2:(labels ? strcol(4) : ""):($3 > middle ? 0xFFFFFF : 0x222222) with labels tc rgb variable notitle
