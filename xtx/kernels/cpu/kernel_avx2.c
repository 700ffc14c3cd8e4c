/* For x86-64 with AVX2 and FMA: 16 registers of 8 numbers. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma")
#define LANES 8
#define ROWS 4
#define KERNEL gru_kernel_avx2
#include "kernel.h"
#endif
