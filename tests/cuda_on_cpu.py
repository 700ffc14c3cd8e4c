"""Simulates CUDA kernels on a CPU, thread by thread: slow, but it tests them without a GPU.

It implements what our kernels use: blocks in sequence, their threads as threads, shared memory, barriers, warp
shuffles.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

_BEFORE = r"""
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
typedef struct { int x, y, z; } dim3_;
typedef struct { float x, y, z, w; } __attribute__((aligned(16))) float4;
static __thread dim3_ threadIdx;
static dim3_ blockIdx, blockDim;
static pthread_barrier_t all_, warp_[32];
static pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
static float lane_[1024];
static int any_;
#define __shared__ static
#define __syncthreads() pthread_barrier_wait(&all_)
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
static float4 make_float4(float x, float y, float z, float w) { return (float4){x, y, z, w}; }
static void atomicMin(int *a, int b) { pthread_mutex_lock(&lock_); *a = min(*a, b); pthread_mutex_unlock(&lock_); }
static void atomicMax(int *a, int b) { pthread_mutex_lock(&lock_); *a = max(*a, b); pthread_mutex_unlock(&lock_); }
static float __int_as_float(int x) { union { int i; float f; } u = {x}; return u.f; }
static int __syncthreads_or(int x) {
    __syncthreads();
    if (!threadIdx.x) any_ = 0;
    __syncthreads();
    if (x) { pthread_mutex_lock(&lock_); any_ = 1; pthread_mutex_unlock(&lock_); }
    __syncthreads();
    int found = any_;
    __syncthreads();
    return found;
}
static float __shfl_xor_sync(unsigned mask, float x, int other) {
    int warp = threadIdx.x / 32;
    lane_[threadIdx.x] = x;
    pthread_barrier_wait(&warp_[warp]);
    float found = lane_[threadIdx.x ^ other];
    pthread_barrier_wait(&warp_[warp]);
    return found;
}
"""

_AFTER = r"""
typedef struct { int number; void **args; } given_;
static void *run_(void *g) {
    given_ *given = g;
    threadIdx.x = given->number;
    void **a = given->args;
    CALL;
    return NULL;
}
void launch(int gx, int gy, int gz, int threads, void **args) {
    pthread_t *t = malloc(threads * sizeof *t);
    given_ *g = malloc(threads * sizeof *g);
    blockDim.x = threads;
    pthread_barrier_init(&all_, NULL, threads);
    for (int w = 0; w < 32; w++) pthread_barrier_init(&warp_[w], NULL, 32);
    for (blockIdx.z = 0; blockIdx.z < gz; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < gy; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++) {
                for (int i = 0; i < threads; i++) {
                    g[i] = (given_){i, args};
                    pthread_create(&t[i], NULL, run_, &g[i]);
                }
                for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
            }
    free(t);
    free(g);
}
"""


class Kernel:
    """In the place of what `torch.cuda._compile_kernel` gives; its tensors are the CPU's."""

    def __init__(self, source: str, name: str, folder: Path) -> None:
        self._name, self._source, self._folder = name, source, folder
        self._launch: Any = None

    def __call__(self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any]) -> None:
        values = [self._value(arg) for arg in args]
        if self._launch is None:
            self._launch = self._compile([kind for kind, _ in values])
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for _, value in values))
        self._launch(*map(int, grid), int(block[0]), pointers)

    @staticmethod
    def _value(arg: Any) -> tuple[str, Any]:
        if isinstance(arg, torch.Tensor):
            return "void *", ctypes.c_void_p(arg.data_ptr())
        # A Python number with a point would be a double there, whatever the kernel takes it for.
        return ("double", ctypes.c_double(arg)) if isinstance(arg, float) else ("int", ctypes.c_int(arg))

    def _compile(self, kinds: Sequence[str]) -> Any:
        body = self._source.replace('extern "C" __global__', "").replace("__device__ __forceinline__", "static")
        call = f"{self._name}({', '.join(f'*({kind} *)a[{i}]' for i, kind in enumerate(kinds))})"
        path = self._folder / f"{self._name}.c"
        path.write_text(_BEFORE + body + _AFTER.replace("CALL", call))
        library = path.with_suffix(".so")
        command = [
            "gcc",
            "-std=gnu11",
            "-O1",
            "-w",
            "-fsanitize=alignment",
            "-fsanitize-undefined-trap-on-error",
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            str(path),
            "-lm",
            "-pthread",
        ]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library)).launch
