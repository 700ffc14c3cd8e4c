// Causal attention over rows that contain several examples, each of which attends only to itself, with dropout of the
// weights; in float32, with a fixed order of summation.
//
// D, the size of a head, is a macro that attention.py defines: a multiple of 4. A thread has one query (or, for the
// gradients of keys and values, one key) and loops over the keys (queries) that it attends to. The threads of a block
// load
// the next ones into shared memory together. torch's attention takes nearly twice as long for heads this small: it
// needs a
// mask as large as all weights, and also computes the masked ones.
//
// Query i of row b is at column at[b, i] and attends to the columns from first[b, at[b, i]] to there. Shapes: q [B, Q,
// *],
// k and v [B, L, *]; a line begins with H * D numbers, and lines are `stride` numbers apart. Fractions are passed as
// their
// bits, because torch's launcher passes a Python float as a double.

#define THREADS 64
#define TILE 32


// A hash: whether a weight is dropped depends only on seed, row, head, query and key.
__device__ __forceinline__ unsigned scramble(unsigned x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ __forceinline__ unsigned hash_query(unsigned seed, int row, int head, int heads, int query)
{
    return scramble(scramble(seed + 0x9e3779b9u * (unsigned)(row * heads + head)) + (unsigned)query);
}

// The factor of a weight: 0 if it is dropped, otherwise `scale`, which compensates for the dropped ones.
__device__ __forceinline__ float kept(unsigned query_hash, int key, unsigned dropped, float scale)
{
    return scramble(query_hash ^ 0x85ebca77u * (unsigned)key) < dropped ? 0.0f : scale;
}

__device__ __forceinline__ float dot(const float* a, const float* b)
{
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int d = 0; d < D; d += 4) {
        const float4 four = *(const float4*)(b + d);
        sum[0] += a[d] * four.x;
        sum[1] += a[d + 1] * four.y;
        sum[2] += a[d + 2] * four.z;
        sum[3] += a[d + 3] * four.w;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

__device__ __forceinline__ void add(float* sum, float weight, const float* b)
{
#pragma unroll
    for (int d = 0; d < D; d += 4) {
        const float4 four = *(const float4*)(b + d);
        sum[d] += weight * four.x;
        sum[d + 1] += weight * four.y;
        sum[d + 2] += weight * four.z;
        sum[d + 3] += weight * four.w;
    }
}

__device__ __forceinline__ void read(float* to, const float* from)
{
#pragma unroll
    for (int d = 0; d < D; d += 4) *(float4*)(to + d) = *(const float4*)(from + d);
}

__device__ __forceinline__ void write(float* to, const float* from, float factor)
{
#pragma unroll
    for (int d = 0; d < D; d += 4) {
        const float* four = from + d;
        *(float4*)(to + d) = make_float4(factor * four[0], factor * four[1], factor * four[2], factor * four[3]);
    }
}

// Loads up to TILE lines of two arrays, from `begin` on, into shared memory.
__device__ __forceinline__ void load_tile(
    float (*a)[D], float (*b)[D], const float* from_a, const float* from_b, int begin, int end, int a_stride,
    int b_stride)
{
    for (int i = threadIdx.x; i < TILE * D / 4; i += THREADS) {
        const int line = i / (D / 4), d = i % (D / 4) * 4;
        if (begin + line >= end) break;
        *(float4*)&a[line][d] = *(const float4*)(from_a + (size_t)(begin + line) * a_stride + d);
        *(float4*)&b[line][d] = *(const float4*)(from_b + (size_t)(begin + line) * b_stride + d);
    }
}

// The range of columns that any query of the block attends to.
__device__ __forceinline__ void range_of_block(int there, int low, int high, int* begin, int* end)
{
    __shared__ int shared_low, shared_high;
    if (!threadIdx.x) shared_low = 0x7fffffff, shared_high = -1;
    __syncthreads();
    if (there) atomicMin(&shared_low, low), atomicMax(&shared_high, high);
    __syncthreads();
    *begin = shared_low;
    *end = shared_high + 1;
}

// out [B, Q, H * D]; sums [B, H, Q]: the logarithm of the sum of all weights before normalisation.
extern "C" __global__ void attend_forward(
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, const int* __restrict__ at,
    const int* __restrict__ first, int queries, int length, int heads, int q_stride, int kv_stride, int scale_bits,
    int rate_bits, const int* __restrict__ seed, float* __restrict__ out, float* __restrict__ sums)
{
    __shared__ float4 keys4[TILE * D / 4], values4[TILE * D / 4];
    float (*keys)[D] = (float (*)[D])keys4, (*values)[D] = (float (*)[D])values4;
    const int query = blockIdx.x * THREADS + threadIdx.x, head = blockIdx.y, row = blockIdx.z;
    const int there = query < queries;
    const int high = there ? at[row * queries + query] : 0, low = there ? first[row * length + high] : 0;
    const unsigned query_hash = hash_query((unsigned)*seed, row, head, heads, query);
    const float scale = __int_as_float(scale_bits), rate = __int_as_float(rate_bits), inverse_keep = 1.0f / (1.0f - rate);
    const unsigned dropped = (unsigned)(rate * 4294967296.0f);
    q += ((size_t)row * queries + query) * q_stride + head * D;
    k += (size_t)row * length * kv_stride + head * D;
    v += (size_t)row * length * kv_stride + head * D;
    float mine[D], sum[D], most = -3.0e38f, total = 0.0f;
#pragma unroll
    for (int d = 0; d < D; d++) sum[d] = mine[d] = 0.0f;
    if (there) read(mine, q);
    int begin, end;
    range_of_block(there, low, high, &begin, &end);
    for (; begin < end; begin += TILE) {
        __syncthreads();
        load_tile(keys, values, k, v, begin, end, kv_stride, kv_stride);
        __syncthreads();
        const int from = max(low, begin), to = there ? min(high, min(begin + TILE, end) - 1) : -1;
        for (int key = from; key <= to; key++) {
            const float score = scale * dot(mine, keys[key - begin]);
            if (score > most) {
                const float less = expf(most - score);
                total *= less;
#pragma unroll
                for (int d = 0; d < D; d++) sum[d] *= less;
                most = score;
            }
            const float weight = expf(score - most);
            total += weight;
            add(sum, weight * kept(query_hash, key, dropped, inverse_keep), values[key - begin]);
        }
    }
    if (!there) return;
    write(out + ((size_t)row * queries + query) * heads * D + head * D, sum, 1.0f / total);
    sums[((size_t)row * heads + head) * queries + query] = most + logf(total);
}

// d_q, with the strides of q; inner [B, H, Q]: the dot products of out and d_out.
extern "C" __global__ void attend_backward_queries(
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, const int* __restrict__ at,
    const int* __restrict__ first, int queries, int length, int heads, int q_stride, int kv_stride, int scale_bits,
    int rate_bits, const int* __restrict__ seed, const float* __restrict__ out, const float* __restrict__ sums,
    const float* __restrict__ d_out, float* __restrict__ d_q, float* __restrict__ inner)
{
    __shared__ float4 keys4[TILE * D / 4], values4[TILE * D / 4];
    float (*keys)[D] = (float (*)[D])keys4, (*values)[D] = (float (*)[D])values4;
    const int query = blockIdx.x * THREADS + threadIdx.x, head = blockIdx.y, row = blockIdx.z;
    const int there = query < queries;
    const int high = there ? at[row * queries + query] : 0, low = there ? first[row * length + high] : 0;
    const unsigned query_hash = hash_query((unsigned)*seed, row, head, heads, query);
    const float scale = __int_as_float(scale_bits), rate = __int_as_float(rate_bits), inverse_keep = 1.0f / (1.0f - rate);
    const unsigned dropped = (unsigned)(rate * 4294967296.0f);
    const size_t line = (size_t)row * queries + query, cell = ((size_t)row * heads + head) * queries + query;
    k += (size_t)row * length * kv_stride + head * D;
    v += (size_t)row * length * kv_stride + head * D;
    float mine[D], given[D], sum[D], product = 0.0f, norm = 0.0f;
#pragma unroll
    for (int d = 0; d < D; d++) sum[d] = mine[d] = given[d] = 0.0f;
    if (there) {
        read(mine, q + line * q_stride + head * D);
        read(given, d_out + line * heads * D + head * D);
        product = dot(given, out + line * heads * D + head * D);
        norm = sums[cell];
        inner[cell] = product;
    }
    int begin, end;
    range_of_block(there, low, high, &begin, &end);
    for (; begin < end; begin += TILE) {
        __syncthreads();
        load_tile(keys, values, k, v, begin, end, kv_stride, kv_stride);
        __syncthreads();
        const int from = max(low, begin), to = there ? min(high, min(begin + TILE, end) - 1) : -1;
        for (int key = from; key <= to; key++) {
            const float weight = expf(scale * dot(mine, keys[key - begin]) - norm);
            const float d_weight = dot(given, values[key - begin]) * kept(query_hash, key, dropped, inverse_keep);
            add(sum, weight * (d_weight - product), keys[key - begin]);
        }
    }
    if (there) write(d_q + line * q_stride + head * D, sum, scale);
}

// d_k and d_v, with the strides of k and v. Must run after attend_backward_queries, which computes `inner`.
extern "C" __global__ void attend_backward_keys(
    const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v, const int* __restrict__ at,
    const int* __restrict__ first, int queries, int length, int heads, int q_stride, int kv_stride, int scale_bits,
    int rate_bits, const int* __restrict__ seed, const float* __restrict__ sums, const float* __restrict__ d_out,
    const float* __restrict__ inner, float* __restrict__ d_k, float* __restrict__ d_v)
{
    __shared__ float4 asking4[TILE * D / 4], given4[TILE * D / 4];
    __shared__ int lows[TILE], highs[TILE];
    __shared__ float norms[TILE], products[TILE];
    __shared__ unsigned query_hashes[TILE];
    float (*asking)[D] = (float (*)[D])asking4, (*given)[D] = (float (*)[D])given4;
    const int key = blockIdx.x * THREADS + threadIdx.x, head = blockIdx.y, row = blockIdx.z;
    const int there = key < length, block_first = blockIdx.x * THREADS, block_last = block_first + THREADS - 1;
    const float scale = __int_as_float(scale_bits), rate = __int_as_float(rate_bits), inverse_keep = 1.0f / (1.0f - rate);
    const unsigned dropped = (unsigned)(rate * 4294967296.0f);
    const size_t line = ((size_t)row * length + key) * kv_stride + head * D;
    float my_key[D], my_value[D], sum_k[D], sum_v[D];
#pragma unroll
    for (int d = 0; d < D; d++) my_key[d] = my_value[d] = sum_k[d] = sum_v[d] = 0.0f;
    if (there) {
        read(my_key, k + line);
        read(my_value, v + line);
    }
    q += (size_t)row * queries * q_stride + head * D;
    d_out += (size_t)row * queries * heads * D + head * D;
    for (int begin = 0; begin < queries; begin += TILE) {
        const int end = min(queries, begin + TILE);
        __syncthreads();
        int seen = 0;
        if (threadIdx.x < TILE && begin + threadIdx.x < queries) {
            const int i = threadIdx.x, column = at[row * queries + begin + i];
            const size_t cell = ((size_t)row * heads + head) * queries + begin + i;
            highs[i] = column;
            lows[i] = first[row * length + column];
            norms[i] = sums[cell];
            products[i] = inner[cell];
            query_hashes[i] = hash_query((unsigned)*seed, row, head, heads, begin + i);
            seen = highs[i] >= block_first && lows[i] <= block_last;
        }
        if (!__syncthreads_or(seen)) continue;
        load_tile(asking, given, q, d_out, begin, end, q_stride, heads * D);
        __syncthreads();
        if (!there) continue;
        for (int i = 0; i < end - begin; i++) {
            if (lows[i] > key || highs[i] < key) continue;
            const float weight = expf(scale * dot(my_key, asking[i]) - norms[i]);
            const float keep = kept(query_hashes[i], key, dropped, inverse_keep);
            add(sum_v, weight * keep, given[i]);
            add(sum_k, weight * (dot(my_value, given[i]) * keep - products[i]), asking[i]);
        }
    }
    if (!there) return;
    write(d_k + line, sum_k, scale);
    write(d_v + line, sum_v, 1.0f);
}
