/* exec/run/parcels.h - tensors on their way from rank to rank at a change of plan
 * (exec/run/move.h).
 *
 * On the host a tensor is sent from where it lies and received into its place. On a device it goes
 * in pieces through a window of pinned memory each way: copies out, messages and copies in run
 * beside one another, and nothing waits for a page to be made.
 *
 * V1  Sends and receives of a rank start in the order of one list, the same on all ranks, of which
 *     each has its part. So the first piece of it that has not arrived is in the windows of both
 *     its ends, whatever their size, and moves: no ranks wait for each other in a circle.
 * V2  Messages of one (peer, tag) leave in the order of the list. */
#ifndef ELAPSE_EXEC_RUN_PARCELS_H
#define ELAPSE_EXEC_RUN_PARCELS_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "exec/comm/comm.h"

/* Of a run: what parcels of a device go through. */
struct parcel_room; /* opaque */
/* num_pieces each way; pinned memory of 2 * num_pieces * piece_bytes. On the host nothing is
 * needed, and *room becomes NULL. */
enum status parcel_room_new(struct backend *be, int64_t piece_bytes, int num_pieces,
                            struct parcel_room **room, struct err *err);
void parcel_room_free(struct parcel_room *room); /* NULL is fine */

struct parcel;
/* Those of one direction, in the order of V1. Zeroed at first. */
struct parcels {
    struct parcel *list; /* owned */
    int64_t num, room;   /* room: of the list */
    int64_t first, next; /* started, and not all done, are [first, next) */
};

/* Both ends add the same bytes under the same tag. The tensor stays as it is until all is done. */
enum status parcels_add(struct parcels *parcels, const struct parcel_room *room, void *tensor,
                        int64_t bytes, int peer, int tag, struct err *err);
/* Start what there is room for; on a device behind a sync(). */
enum status parcels_start(struct parcels *parcels, bool sends, const struct comm *comm,
                          struct parcel_room *room, struct err *err);
/* Until all have arrived, and what was sent may change. */
enum status parcels_finish(struct parcels *sent, struct parcels *received, const struct comm *comm,
                           struct parcel_room *room, struct err *err);
void parcels_clear(struct parcels *parcels); /* safe twice */

#endif
