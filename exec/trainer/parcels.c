/* exec/trainer/parcels.c - each parcel passes COPIES, TRAVELS, ARRIVED (a receive travels first).
 * advance() moves all parcels of one direction that are in the window; parcels_finish() alternates
 * between both directions until everything has arrived. */
#include "exec/trainer/parcels.h"

#include <stdlib.h>

#include "exec/base/watch.h"
#include "partition/base/arrays.h"

/* A send passes these in order; a receive travels first and is copied then. */
enum stage_of_parcel { COPIES, TRAVELS, ARRIVED };

/* A tensor, or a piece of one. */
struct parcel {
    char *tensor; /* of a stage */
    char *data;   /* host memory: the tensor itself, or a place in the window */
    int64_t bytes;
    int peer, tag;
    enum stage_of_parcel at;
    struct backend_event *copied; /* borrowed from the window */
    struct comm_request request;
};

/* One direction: the n-th parcel has place n modulo num. */
struct window {
    char *pinned; /* owned, num * piece_bytes */
    struct backend_lane *lane;
    struct backend_event **copied;
};

struct parcel_room {
    struct backend *be; /* borrowed */
    int64_t piece_bytes;
    int num;
    struct window in, out;
};

/* --- what a run has once ---------------------------------------------------------------------- */

static enum status open_window(struct parcel_room *room, struct window *window, struct err *err)
{
    struct backend *be = room->be;
    void *pinned = NULL;
    enum status rc = be->alloc_host(be, room->num * room->piece_bytes, &pinned, err);
    window->pinned = pinned;
    window->copied = calloc((size_t)room->num, sizeof *window->copied);
    if (rc == OK && !window->copied)
        rc = err_nomem(err);
    THEN(be->lane_new(be, &window->lane, err));
    for (int i = 0; rc == OK && i < room->num; i++)
        rc = be->event_new(be, &window->copied[i], err);
    return rc;
}

static void close_window(struct parcel_room *room, struct window *window)
{
    struct backend *be = room->be;
    for (int i = 0; window->copied && i < room->num; i++)
        be->event_free(be, window->copied[i]);
    free(window->copied);
    be->lane_free(be, window->lane);
    be->free_host(be, window->pinned);
}

enum status parcel_room_new(struct backend *be, int64_t piece_bytes, int num_pieces,
                            struct parcel_room **out, struct err *err)
{
    *out = NULL;
    if (be->host_memory)
        return OK;
    struct parcel_room *room = calloc(1, sizeof *room);
    if (!room)
        return err_nomem(err);
    *room = (struct parcel_room){.be = be, .piece_bytes = piece_bytes, .num = num_pieces};
    enum status rc = open_window(room, &room->out, err);
    THEN(open_window(room, &room->in, err));
    if (rc == OK)
        *out = room;
    else
        parcel_room_free(room);
    return rc;
}

void parcel_room_free(struct parcel_room *room)
{
    if (!room)
        return;
    close_window(room, &room->out);
    close_window(room, &room->in);
    free(room);
}

/* --- parcels ---------------------------------------------------------------------------------- */

static enum status add_piece(struct parcels *parcels, char *at, int64_t bytes, int peer, int tag,
                             struct err *err)
{
    if (!array_grow(&parcels->list, parcels->num + 1, &parcels->room, sizeof *parcels->list))
        return err_nomem(err);
    parcels->list[parcels->num++] =
        (struct parcel){.tensor = at, .data = at, .bytes = bytes, .peer = peer, .tag = tag};
    return OK;
}

enum status parcels_add(struct parcels *parcels, const struct parcel_room *room, void *tensor,
                        int64_t bytes, int peer, int tag, struct err *err)
{
    enum status rc = OK;
    for (int64_t at = 0, n; rc == OK && at < bytes; at += n) {
        n = room && bytes - at > room->piece_bytes ? room->piece_bytes : bytes - at;
        rc = add_piece(parcels, (char *)tensor + at, n, peer, tag, err);
    }
    return rc;
}

void parcels_clear(struct parcels *parcels)
{
    free(parcels->list);
    *parcels = (struct parcels){0};
}

/* --- on the way ------------------------------------------------------------------------------- */

static enum status travel(struct parcel *p, bool sends, const struct comm *comm, struct err *err)
{
    p->at = TRAVELS;
    return sends ? comm_isend(comm->all, p->data, p->bytes, p->peer, p->tag, &p->request, err)
                 : comm_irecv(comm->all, p->data, p->bytes, p->peer, p->tag, &p->request, err);
}

static void copy(struct parcel *p, bool sends, struct parcel_room *room)
{
    struct backend *be = room->be;
    struct backend_lane *lane = sends ? room->out.lane : room->in.lane;
    p->at = COPIES;
    if (sends)
        be->lane_copy_out(be, lane, p->data, p->tensor, p->bytes);
    else
        be->lane_copy_in(be, lane, p->tensor, p->data, p->bytes);
    be->lane_record(be, lane, p->copied);
}

enum status parcels_start(struct parcels *parcels, bool sends, const struct comm *comm,
                          struct parcel_room *room, struct err *err)
{
    struct window *window = !room ? NULL : sends ? &room->out : &room->in;
    enum status rc = OK;
    for (; rc == OK && parcels->next < parcels->num; parcels->next++) {
        struct parcel *p = &parcels->list[parcels->next];
        if (room && parcels->next - parcels->first == room->num)
            break;
        if (room) {
            const int64_t place = parcels->next % room->num;
            p->data = window->pinned + place * room->piece_bytes;
            p->copied = window->copied[place];
        }
        if (room && sends)
            copy(p, sends, room);
        else
            rc = travel(p, sends, comm, err);
    }
    return rc;
}

/* Take the next step of a parcel if its copy or message has ended. On the host, wait for the
 * message. */
static enum status go_on(struct parcel *p, bool sends, const struct comm *comm,
                         struct parcel_room *room, struct err *err)
{
    enum status rc = OK;
    bool done = false;
    if (p->at == COPIES && room->be->event_done(room->be, p->copied)) {
        rc = room->be->failure(room->be, err); /* after a failure every event is done */
        if (rc == OK && sends)
            return travel(p, sends, comm, err);
        p->at = ARRIVED;
    } else if (p->at == TRAVELS && !room) {
        rc = comm_wait(&p->request, err);
        p->at = ARRIVED;
    } else if (p->at == TRAVELS) {
        rc = comm_test(&p->request, &done, err);
        if (rc == OK && done && sends)
            p->at = ARRIVED;
        else if (rc == OK && done)
            copy(p, sends, room);
    }
    return rc;
}

static enum status advance(struct parcels *parcels, bool sends, const struct comm *comm,
                           struct parcel_room *room, struct err *err)
{
    enum status rc = parcels_start(parcels, sends, comm, room, err);
    for (int64_t i = parcels->first; rc == OK && i < parcels->next; i++) {
        struct parcel *p = &parcels->list[i];
        rc = go_on(p, sends, comm, room, err);
        if (sends && p->at == COPIES) /* later messages must not overtake it */
            break;
    }
    while (parcels->first < parcels->next && parcels->list[parcels->first].at == ARRIVED)
        parcels->first++;
    return rc;
}

enum status parcels_finish(struct parcels *sent, struct parcels *received, const struct comm *comm,
                           struct parcel_room *room, struct err *err)
{
    enum status rc = OK;
    if (room) /* on the host comm_wait() notes each message */
        watch_wait("for weights", -1, comm->size);
    while (rc == OK && (received->first < received->num || sent->first < sent->num)) {
        rc = advance(received, false, comm, room, err);
        THEN(advance(sent, true, comm, room, err));
    }
    watch_wait_end();
    return rc;
}
