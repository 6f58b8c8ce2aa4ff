/* exec/stage/skips.c - skip tensors between the items of a stage and between stages (U-ViT).
 *
 * A skip tensor has two ports: the item that it leaves and the item that it enters. If both are in
 * this stage, the tensor stays in a buffer of its own; else it lies in the buffer of an edge, which
 * carries all tensors of one pair of stages. */
#include "exec/stage/skips.h"

#include <stdlib.h>

/* The order of edges is that of the workload (partition/): by other stage, then by whether the
 * source trains. Within an edge the tensors have the order of the model's skips. */

static int stage_of(const struct stage_spec *spec, int item)
{
    int s = 0;
    while (spec->first_items && s + 1 < spec->num_stages && spec->first_items[s + 1] <= item)
        s++;
    return s;
}

/* Number the edges of one side. Ports come in model order; ports with equal (peer, grad) share an
 * edge. */
static int number(const struct stage *stage, struct skip_port *ports, int num, bool entering)
{
    const struct model *m = stage->spec.model;
    const int peers = stage->spec.first_items ? stage->spec.num_stages : 1;
    int edges = 0;
    for (int peer = 0; peer < peers; peer++)
        for (int grad = 0; grad < 2; grad++) {
            int tensors = 0;
            for (int i = 0; i < num; i++) {
                const struct skip_edge *k = &m->skips[ports[i].skip];
                if (ports[i].edge < 0 && ports[i].grad == (grad == 1) &&
                    stage_of(&stage->spec, entering ? k->from : k->to) == peer) {
                    ports[i].nth = tensors++;
                    ports[i].edge = edges + 1;
                }
            }
            edges += tensors > 0;
        }
    return edges;
}

static int64_t tensor_elems(const struct stage *stage, int64_t samples)
{
    return samples * stage->arch.seq * stage->arch.hidden;
}

static int64_t tensor_bytes(const struct stage *stage, int64_t samples)
{
    return backend_bytes(stage->spec.backend, tensor_elems(stage, samples));
}

/* Bytes of the buffer of edge e at the largest micro-batch. */
static int64_t edge_bytes(const struct stage *stage, const struct skip_port *ports, int num, int e)
{
    int64_t tensors = 0;
    for (int i = 0; i < num; i++)
        tensors += ports[i].edge == e;
    return tensors * tensor_bytes(stage, stage->spec.max_samples);
}

/* List the edges that enter the stage and those that leave it; one that does both stays inside. */
static enum status list_ports(struct stage *stage, struct err *err)
{
    const struct stage_spec *spec = &stage->spec;
    const int64_t bytes = tensor_bytes(stage, spec->max_samples);
    enum status rc = OK;
    for (int k = 0; k < spec->model->num_skips && rc == OK; k++) {
        const struct skip_edge *skip = &spec->model->skips[k];
        const bool to = skip->to >= spec->first_item && skip->to < spec->end_item;
        const bool from = skip->from >= spec->first_item && skip->from < spec->end_item;
        struct skip_port port = {
            .skip = k, .edge = to && from ? 0 : -1, .grad = skip->from >= spec->num_frozen_items};
        if (to) {
            port.item = skip->to - spec->first_item;
            stage->layers[port.item].joins = true;
            stage->enters[stage->num_enters++] = port;
        }
        if (from) {
            port.item = skip->from - spec->first_item;
            stage->leaves[stage->num_leaves++] = port;
        }
        if (to && from)
            rc = stage_grab(stage, bytes, &stage->inner_act[k], err);
        if (to && from && port.grad)
            THEN(stage_grab(stage, bytes, &stage->inner_grad[k], err));
    }
    return rc;
}

/* Take the buffers of a slot, one for each edge to or from another stage. */
static enum status grab_slot(struct stage *stage, struct slot *slot, struct err *err)
{
    const size_t most = (size_t)stage->spec.model->num_skips + 1;
    enum status rc = OK;
    slot->skip_out = calloc(most, sizeof *slot->skip_out);
    slot->skip_grad = calloc(most, sizeof *slot->skip_grad);
    if (!slot->skip_out || !slot->skip_grad)
        return err_nomem(err);
    for (int e = 1; e <= stage->num_out && rc == OK; e++)
        rc = stage_grab(stage, edge_bytes(stage, stage->leaves, stage->num_leaves, e),
                        &slot->skip_out[e], err);
    for (int p = 0; p < stage->num_enters && rc == OK; p++) {
        const int e = stage->enters[p].edge;
        if (e > 0 && stage->enters[p].grad && !slot->skip_grad[e])
            rc = stage_grab(stage, edge_bytes(stage, stage->enters, stage->num_enters, e),
                            &slot->skip_grad[e], err);
    }
    return rc;
}

enum status stage_skips_open(struct stage *stage, struct err *err)
{
    const size_t most = (size_t)stage->spec.model->num_skips + 1;
    for (int i = 0; i < stage->num_items; i++)
        stage->layers[i].joins = false;
    if (most == 1)
        return OK;
    stage->enters = calloc(most, sizeof *stage->enters);
    stage->leaves = calloc(most, sizeof *stage->leaves);
    stage->inner_act = calloc(most, sizeof *stage->inner_act);
    stage->inner_grad = calloc(most, sizeof *stage->inner_grad);
    if (!stage->enters || !stage->leaves || !stage->inner_act || !stage->inner_grad)
        return err_nomem(err);
    enum status rc = list_ports(stage, err);
    if (rc != OK)
        return rc;
    stage->num_in = number(stage, stage->enters, stage->num_enters, true);
    stage->num_out = number(stage, stage->leaves, stage->num_leaves, false);
    if (stage->num_enters > 0)
        rc = stage_grab(stage, 2 * tensor_bytes(stage, stage->spec.max_samples), &stage->wide, err);
    for (int i = 0; i < stage->num_slots && rc == OK; i++)
        rc = grab_slot(stage, &stage->slots[i], err);
    return rc;
}

void stage_skips_close(struct stage *stage)
{
    const int64_t one = tensor_bytes(stage, stage->spec.max_samples);
    for (int i = 0; stage->slots && i < stage->num_slots; i++) {
        struct slot *slot = &stage->slots[i];
        for (int e = 1; slot->skip_out && e <= stage->num_out; e++)
            stage_drop(stage, &slot->skip_out[e],
                       edge_bytes(stage, stage->leaves, stage->num_leaves, e));
        for (int e = 1; slot->skip_grad && e <= stage->num_in; e++)
            stage_drop(stage, &slot->skip_grad[e],
                       edge_bytes(stage, stage->enters, stage->num_enters, e));
        free(slot->skip_out);
        free(slot->skip_grad);
        slot->skip_out = slot->skip_grad = NULL;
    }
    for (int k = 0; k < stage->spec.model->num_skips; k++) {
        if (stage->inner_act)
            stage_drop(stage, &stage->inner_act[k], one);
        if (stage->inner_grad)
            stage_drop(stage, &stage->inner_grad[k], one);
    }
    stage_drop(stage, &stage->wide, 2 * one);
    free(stage->enters);
    free(stage->leaves);
    free(stage->inner_act);
    free(stage->inner_grad);
    stage->enters = stage->leaves = NULL;
    stage->inner_act = stage->inner_grad = NULL;
    stage->num_enters = stage->num_leaves = stage->num_in = stage->num_out = 0;
}

static const struct skip_port *entering(const struct stage *stage, int item)
{
    for (int p = 0; p < stage->num_enters; p++)
        if (stage->enters[p].item == item)
            return &stage->enters[p];
    return NULL;
}

const void *stage_skip_in(struct stage *stage, void *const *in, int item, int64_t n)
{
    const struct skip_port *port = entering(stage, item);
    if (!port)
        return NULL;
    return port->edge > 0
               ? backend_at(stage->spec.backend, in[port->edge], port->nth * tensor_elems(stage, n))
               : stage->inner_act[port->skip];
}

void *stage_skip_grad_in(struct stage *stage, const struct slot *slot, int item, int64_t n)
{
    const struct skip_port *port = entering(stage, item);
    if (!port || !port->grad)
        return NULL;
    return port->edge > 0 ? backend_at(stage->spec.backend, slot->skip_grad[port->edge],
                                       port->nth * tensor_elems(stage, n))
                          : stage->inner_grad[port->skip];
}

void stage_skip_leave(struct stage *stage, const struct slot *slot, int item, int64_t n,
                      const void *y)
{
    struct backend *be = stage->spec.backend;
    for (int p = 0; p < stage->num_leaves; p++) {
        const struct skip_port *port = &stage->leaves[p];
        if (port->item != item)
            continue;
        void *dst = port->edge > 0 ? backend_at(be, slot->skip_out[port->edge],
                                                port->nth * tensor_elems(stage, n))
                                   : stage->inner_act[port->skip];
        be->copy(be, dst, y, tensor_bytes(stage, n));
    }
}

void stage_skip_grad_out(struct stage *stage, void *const *grad_out, int item, int64_t n, void *dy)
{
    struct backend *be = stage->spec.backend;
    for (int p = 0; p < stage->num_leaves; p++) {
        const struct skip_port *port = &stage->leaves[p];
        if (port->item != item || !port->grad)
            continue;
        const void *src = port->edge > 0 ? backend_at(be, grad_out[port->edge],
                                                      port->nth * tensor_elems(stage, n))
                                         : stage->inner_grad[port->skip];
        be->add(be, tensor_elems(stage, n), src, dy);
    }
}
