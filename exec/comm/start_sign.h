/* exec/comm/start_sign.h - a rank's sign of life while MPI starts, for cli/launch/start_signs.h.
 *
 * In the folder that ELAPSE_STARTS names, a file "begun-PID" with a lock on it becomes "ready-PID".
 * Without that variable nothing happens. Files are empty, so that a limit of file sizes is no
 * obstacle. */
#pragma once

/* Before MPI_Init(). */
void start_sign_begin(void);
/* After it. */
void start_sign_ready(void);
