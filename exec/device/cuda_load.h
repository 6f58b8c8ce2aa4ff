/* exec/device/cuda_load.h - calls the functions of exec/cuda/ in the plugin
 * (exec/base/plugin.h). */
#pragma once

#include "exec/base/cuda.h"

/* Like the functions of the same names in exec/base/cuda.h, plus the errors of plugin_symbol(). */
struct backend *cuda_load_backend(const struct cuda_spec *spec, struct err *err);
enum status cuda_load_device_info(int device, struct cuda_device *info, struct err *err);
int cuda_load_num_devices(void); /* 0 also where the plugin cannot be loaded */
