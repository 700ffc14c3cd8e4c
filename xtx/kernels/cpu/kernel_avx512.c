/* For x86-64 with AVX-512: 32 registers of 16 numbers. */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define LANES 16
#define ROWS 8
#define KERNEL gru_kernel_avx512
#include "kernel.h"
#endif
