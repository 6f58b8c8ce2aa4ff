# style.gp - what all figures share: colours, lines, borders, grid, key. It runs before every other script.
#
# Colours: the palette of Okabe and Ito ("Color Universal Design", 2008), which people with any common form of colour
# blindness can tell apart. Lines differ in their points too.
ink = "#333333"
faint = "#b8b8b8"
set linetype 1 lc rgb "#0072B2" lw 2 pt 7 ps 0.6
set linetype 2 lc rgb "#D55E00" lw 2 pt 5 ps 0.6
set linetype 3 lc rgb "#009E73" lw 2 pt 9 ps 0.7
set linetype 4 lc rgb "#CC79A7" lw 2 pt 13 ps 0.8
set linetype 5 lc rgb "#E69F00" lw 2 pt 11 ps 0.7
set linetype 6 lc rgb "#56B4E9" lw 2 pt 6 ps 0.7
set linetype 7 lc rgb "#000000" lw 2 pt 4 ps 0.7
set linetype 8 lc rgb "#8C3D00" lw 2 pt 8 ps 0.7
set linetype cycle 8
set border 3 lc rgb ink
set tics nomirror out textcolor rgb ink
set grid lt 1 dt 1 lc rgb "#d9d9d9" lw 0.7
set key outside right top Left reverse samplen 2 spacing 1.2 textcolor rgb ink
set xlabel textcolor rgb ink
set ylabel textcolor rgb ink
set style fill solid 1.0 noborder
set encoding utf8
set format "%.10g"
