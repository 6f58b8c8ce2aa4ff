/* exec/base/ending.h - ends the process when memory or room for files runs out. */
#pragma once

/* Call it first in main(). Starts the program anew with OPENBLAS_NUM_THREADS=1 if that variable is
 * not set, because OpenBLAS starts its threads before main(). A write beyond the limit on file
 * sizes fails (EFBIG), like one on a full disk, and does not end the process. exit(), whoever calls
 * it, flushes the streams and ends the process without the exit handlers of libraries. */
void ending_prepare(char **argv);
