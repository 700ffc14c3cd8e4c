/* For any machine: SSE2 on x86-64, NEON on arm. */
#define LANES 4
#define ROWS 4
#define KERNEL gru_kernel_plain
#include "kernel.h"
