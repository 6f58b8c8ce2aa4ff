/* exec/device/device_info.h - describes machine and device, for profiles, summaries and the
 * planner.
 */
#pragma once

#include "exec/device/cores.h"
#include "partition/plan/job.h"
#include "profiles/store/profile.h"

/* This machine as a profile describes it, with the device that ranks compute on: the host's
 * processor, or the first visible GPU (name, memory, multiprocessors as cores, clock, driver,
 * libraries; the profile's name is KIND-HOST). ERR_SYSTEM, ERR_INFEASIBLE: no such device. */
enum status device_describe(enum device_kind device, const struct cores *cores,
                            struct profile_info *info, struct err *err);

/* The kind under which published data of a GPU are kept ("h200" for "NVIDIA H200"). For a GPU
 * without such data it is the data centre part of its generation. major: of the compute capability.
 */
const char *device_gpu_kind(const char *name, int major);
