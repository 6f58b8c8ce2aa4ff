/* exec/trainer/parcels.h - tensors on their way from rank to rank at a change of plan
 * (exec/change/move.h).
 *
 * On the host a tensor is sent from its place and received into its place. On a device it goes in
 * pieces through a window of pinned memory in each direction: copies out, messages and copies in
 * run at the same time, and no page has to be pinned during the change.
 *
 * No ranks wait for each other in a circle: all ranks start their sends and receives in the order
 * of one list, and each rank has its part of it. So the first piece of the list that has not
 * arrived is in the windows of both its ranks, whatever their size, and moves on. Messages with one
 * peer and tag leave in the order of the list. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "exec/comm/comm.h"

struct parcel_room; /* opaque: the windows of a device, made once a run */
/* num_pieces in each direction; takes 2 * num_pieces * piece_bytes of pinned memory. A host-memory
 * backend needs none, and *room becomes NULL. */
enum status parcel_room_new(struct backend *be, int64_t piece_bytes, int num_pieces,
                            struct parcel_room **room, struct err *err);
void parcel_room_free(struct parcel_room *room); /* NULL is fine */

struct parcel;
/* The parcels of one direction, in the order of the list. Zeroed at first. */
struct parcels {
    struct parcel *list; /* owned */
    int64_t num, room;   /* room: allocated entries of the list */
    int64_t first, next; /* parcels [first, next) have started, and may have arrived */
};

/* Both ends add the same bytes under the same tag. The tensor must not change until all have
 * arrived. */
enum status parcels_add(struct parcels *parcels, const struct parcel_room *room, void *tensor,
                        int64_t bytes, int peer, int tag, struct err *err);
/* Start as many as the window holds. On a device call sync() before. */
enum status parcels_start(struct parcels *parcels, bool sends, const struct comm *comm,
                          struct parcel_room *room, struct err *err);
/* Wait until all have arrived, and the memory of those sent may change. */
enum status parcels_finish(struct parcels *sent, struct parcels *received, const struct comm *comm,
                           struct parcel_room *room, struct err *err);
void parcels_clear(struct parcels *parcels); /* safe twice */
