// Sums over many rows in a fixed order, for the gradients of biases and layer norms. torch's sums take twice as long:
// for
// ten thousand rows of few columns they leave most of the device idle.

// out[chunk, column] is the sum of a column over the rows of a chunk. A thread has one column.
extern "C" __global__ void column_sums(
    const float* __restrict__ x, int rows, int columns, int chunk, float* __restrict__ out)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * chunk;
    if (column >= columns) return;
    const int last = min(rows, first + chunk);
    float sum = 0.0f;
#pragma unroll 8
    for (int row = first; row < last; row++) sum += x[(size_t)row * columns + column];
    out[(size_t)blockIdx.y * columns + column] = sum;
}

// The gradient of a layer norm over W columns, W a multiple of 32. A warp has one row at a time, a block of WARPS warps
// `chunk` rows; sums[block] are the block's parts of the gradients of weight and bias.
#define K (W / 32)
#define WARPS 4

__device__ __forceinline__ float over_warp(float x)
{
#pragma unroll
    for (int i = 16; i; i >>= 1) x += __shfl_xor_sync(0xffffffff, x, i);
    return x;
}

extern "C" __global__ void norm_backward(
    const float* __restrict__ d_out, const float* __restrict__ x, const float* __restrict__ mean,
    const float* __restrict__ spread,  // 1 / standard deviation of each row
    const float* __restrict__ weight, int rows, int chunk, float* __restrict__ d_x, float* __restrict__ sums)
{
    __shared__ float parts[WARPS][2 * W];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float scale[K], d_weight[K], d_bias[K];
#pragma unroll
    for (int k = 0; k < K; k++) {
        scale[k] = weight[lane + 32 * k];
        d_weight[k] = d_bias[k] = 0.0f;
    }
    const int first = blockIdx.x * chunk, last = min(rows, first + chunk);
    for (int row = first + warp; row < last; row += WARPS) {
        const size_t at = (size_t)row * W + lane;
        const float middle = mean[row], s = spread[row];
        float normal[K], given[K], one = 0.0f, two = 0.0f;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const float g = d_out[at + 32 * k];
            normal[k] = (x[at + 32 * k] - middle) * s;
            d_weight[k] += g * normal[k];
            d_bias[k] += g;
            given[k] = g * scale[k];
            one += given[k];
            two += given[k] * normal[k];
        }
        one = over_warp(one) / W;
        two = over_warp(two) / W;
#pragma unroll
        for (int k = 0; k < K; k++) d_x[at + 32 * k] = s * (given[k] - one - normal[k] * two);
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        parts[warp][lane + 32 * k] = d_weight[k];
        parts[warp][W + lane + 32 * k] = d_bias[k];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * W; i += blockDim.x) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; w++) sum += parts[w][i];
        sums[(size_t)blockIdx.x * 2 * W + i] = sum;
    }
}
