/* partition/step/step_rules.h - when each op of a step starts and ends, and which memory is held
 * meanwhile.
 *
 * The workload (workload.h) says how long each op takes. These rules say the rest. The planner's
 * recurrence (schedule_time.h) and the event engine (sim/step/event_run.c) follow them to the
 * nanosecond, each on its own, and exec/ is built alike. Code cites them by name.
 *
 * Time
 *
 * time-1  A device runs F B I W R Z UPDATE one at a time on its compute stream, in list order. Busy
 *     time is the time of this stream.
 * time-1b  An F and a B that overlap (OP_OVERLAPPED) are one op. It starts when both messages are
 *     there, and what both make leaves when it ends. It takes the compute of both in full, and the
 *     all-to-alls of experts in one of them run during the compute of the other. While they do,
 *     they take cluster.overlap_share of the device from it: c + share x for all-to-alls of x and a
 *     rest c, at least x. (DeepSeek-V3 Technical Report, 2024, section 3.2.2: 20 of 132 SMs carry
 *     the messages.) Without all-to-alls that is F + B.
 * time-2  C and P run on copy engines, one for each direction, each in list order. C waits for its
 *     launch only, so it reads ahead; its F waits for it. P starts when the compute op before it in
 *     the list has ended. Nothing but the end of the step waits for P.
 * time-2b  A thread of the host reads micro-batches from the cache ahead of the steps, so C takes
 *     the copy to the device only. A step lasts at least as long as the thread needs for the
 *     micro-batches of a replica (cache_read_ns of the workload).
 * time-3  A SEND starts when the compute op before it in the list has ended. It takes latency +
 *     bytes / bandwidth (also for 0 bytes) and occupies no stream. A RECV takes no time; the next
 *     compute op of the list waits for its message. Stages of one rank hand over at once.
 * time-3b  (cluster.sends: blocking) A SEND also holds the compute stream of its rank: the next op
 *     of that stream starts no earlier than the transfer ends. The sends after one compute op run
 *     side by side, also with what the rank receives then, because frameworks batch these into one
 *     wait. The transfer does not wait for the receiver to reach its RECV, so a list that runs with
 *     eager sends runs with blocking ones. (Megatron-LM's batch_isend_irecv() and DeepSpeed's
 *     p2p.send() return when the message is there.)
 * time-3c (cluster.message_host) Where the processor that computes also moves messages, each one
 *     takes message_host + bytes / message_host_rate from it on both ends. An activation lengthens
 *     the F (or Z) of its sender and of its receiver by that, a gradient their B (or I).
 * time-4  A bucket of a stage is ready on a replica when the stage's last backward op ends, less
 *     lead_ns (lead_w_ns where that op is a W), but not before that op starts. Its all-reduce
 *     starts when it is ready on all replicas and the stage's previous bucket has ended: one after
 *     another within a stage, stages side by side. Where a host's processor computes, the
 *     all-reduce takes the cores of the backward and delays it by as much as it overlaps, so the
 *     leads are 0 there.
 * time-5  NORM starts when every rank of every replica has reached it: the compute ops before it
 *     and the all-reduces of the rank's stages have ended. It takes norm_ns and ends everywhere at
 *     once.
 * time-6  UPDATE waits for its stage's all-reduces, or for NORM where there is one.
 * time-7  The step runs from the first op start to the last op end on any device. Sends do not
 *     count for that, all-reduces do. Times of devices are counted from the step's start.
 * time-8  TIED is an all-reduce between two ranks of a replica, those of the first and of the last
 *     stage. While a table that these stages share (tied weights) trains, each of them holds a
 *     gradient of it. TIED starts when both ranks have reached it, as for NORM, and ends on both at
 *     once. NORM and UPDATE wait for it. (Megatron-LM's embedding group.) One rank that holds both
 *     stages adds the two for itself, which is not counted.
 * time-9  The B, or the W where the backward is split, of a stage and micro-batch with a share rho
 *     (partition/freeze/shares.h) takes rho of its items' weight-gradient time (weight_ns) less:
 *     I + (1 - rho) W. That is a mean, because a pass leaves out whole items, now these, now those.
 *     The I stays, and so do all-reduces and UPDATE, because another micro-batch may count for the
 *     items. The bucket leads of a stage's last backward shrink in proportion. With rho = 1
 *     everywhere GPipe and 1F1B of equal stages take (M + K - 1)(f + i). Below a frozen prefix
 *     nothing changes: the first active item has no I, and its B is (1 - rho) W.
 *
 * Launching by the host, one of:
 *
 * launch-async  (cluster.host_blocking false) A host thread for each device launches F B I W R Z C
 *     P UPDATE of its list without waiting, host_op_ns each. The i-th of them, from 0, starts no
 *     earlier than (i + 1) * host_op_ns on the clock on which all hosts begin at 0. Other ops cost
 *     the host nothing. With host_op_ns = 0 there is no host.
 * launch-blocking  One process drives the K devices of a pipeline wave by wave: it launches one
 *     device after the other and waits for all. So each F B I W R Z takes K * host_op_ns longer,
 *     which is in op_ns and counts as busy, and C and P run on the compute stream. (The paper's
 *     system shows 30, 10, 10 ms a micro-batch at K = 8, 4, 2; this gives a cost that grows with
 *     K.)
 *
 * Memory. Every change happens at an op of the device, so the list alone gives the peak.
 *
 * memory-1  A rank always holds context, weights, gradients, optimizer state and, under a canonical
 *     reduction, the sums of gradients that wait for their neighbours in the tree. A run that
 *     measures evidence holds the weights that train twice. Weights are
 *     trainable and frozen ones; rank 0 also holds those of a prefix outside the pipeline, for
 *     evaluation and for samples that the cache lacks. A table that the head shares has two
 *     gradients, both on the rank of the table and on that of the head.
 * memory-2  Stash is taken when F starts and freed when B ends, or W where the backward is split.
 *     Under recompute, where the pair has an R, F takes input_bytes instead, R adds the stash, and
 *     both are freed. An I whose W leaves out a share of the weight gradients frees that share
 *     of the stash, because nothing reads it any more. Gradients stay allocated.
 * memory-3  A receive buffer (the edge's held_bytes) is taken at RECV and freed when the next
 *     compute op of its stage and micro-batch ends. C takes copy_bytes in the same way.
 *
 * memory-4  While an op of a stage runs, its device also holds work_bytes: the workspace of its
 *     items, layers that run again inside a backward, weights and gradients gathered for shards.
 *
 * stash-distance  How long a pass takes depends on how much stash its rank goes over before it
 * comes back to the same bytes, because the processor's caches keep the last of it. A rank that
 * holds P bytes of stash at most writes and reads them in turn. So a stage with B bytes of stash a
 *     micro-batch finds a byte after P - B/2 others, on average over its items (Mattson et al.,
 *     1970, call it stack distance). F, R, B, I and W take cost_item_ns() at that distance, the
 * same for all micro-batches.
 *
 * Left out: FROZEN_CACHED ignores cache_write, because it would write what it reads. */
#pragma once

#include <stdint.h>

#include "partition/base/status.h"
#include "partition/base/units.h"

/* Longest step that is accepted, 36 years: sums of a few such still fit an int64_t. */
#define STEP_NS_MAX ((int64_t)1 << 60)

/* Add to a sum of times of one step. ERR_INPUT when it passes STEP_NS_MAX; what names the times. */
static inline enum status step_add_ns(int64_t *sum, int64_t ns, const char *what, struct err *err)
{
    if (!add_ok(*sum, ns, sum) || *sum > STEP_NS_MAX)
        return err_set(err, ERR_INPUT, "%s of a step take longer than 2^60 ns", what);
    return OK;
}
