// GRUs over many short texts at once: one block of threads for each text, the recurrent weights in registers.
//
// H, the hidden size, is a macro that kernels.py defines. A block has 3H threads. In the forward kernel thread j has
// row j
// of W_hh in registers, so a time step takes H multiplications per thread, with the state broadcast from shared memory;
// only the next word's input is read from global memory. cuDNN needs a kernel launch and global memory for each step.
//
// texts[row] is the id of the row's text, -1 for an unused row. at[row] is the position of the row's steps in the
// arrays
// for the backward kernel, -1 if nothing is stored.

#define G (3 * H)

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// out: the state after the last word [n, H]. kept_state: the state before each word [T, H]. kept_gates: reset, update,
// new, and the state's part of new before the reset gate [T, 4H].
extern "C" __global__ void __launch_bounds__(G, 1) gru_forward(
    const int* __restrict__ texts, const int* __restrict__ encoders, const int* __restrict__ at,
    const int* __restrict__ words, const int* __restrict__ lengths, int longest, int all_encoders,
    const float* __restrict__ inputs,   // [vocabulary, encoders, 3H]: W_ih x + b_ih of every word
    const float* __restrict__ weights,  // [encoders, H, 3H]: W_hh transposed
    const float* __restrict__ biases,   // [encoders, 3H]: b_hh
    const float* __restrict__ start,    // [n, H]: the state to begin with, if begin is not 0
    int begin, float* __restrict__ out, float* __restrict__ kept_state, float* __restrict__ kept_gates)
{
    __shared__ float4 state4[H / 4];
    __shared__ float gates[2 * H];
    float* state = (float*)state4;
    const int row = blockIdx.x, j = threadIdx.x;
    const int text = texts[row];
    if (text < 0) {
        if (j < H) out[(size_t)row * H + j] = 0.0f;
        return;
    }
    const int encoder = encoders[row], first = at[row], length = lengths[text];
    const int* word = words + (size_t)text * longest;
    const float* input = inputs + encoder * G + j;
    const size_t width = (size_t)all_encoders * G;
    float w[H];
    const float* column = weights + (size_t)encoder * H * G + j;
#pragma unroll
    for (int k = 0; k < H; k++) w[k] = column[k * G];
    const float bias = biases[encoder * G + j];
    if (j < H) state[j] = begin ? start[(size_t)row * H + j] : 0.0f;
    float next = length > 0 ? input[word[0] * width] : 0.0f;
    __syncthreads();
    for (int t = 0; t < length; t++) {
        const float x = next;
        if (t + 1 < length) next = input[word[t + 1] * width];
        float a0 = bias, a1 = 0.0f, a2 = 0.0f, a3 = 0.0f;
#pragma unroll
        for (int k = 0; k < H / 4; k++) {
            const float4 h = state4[k];
            a0 = fmaf(w[4 * k], h.x, a0);
            a1 = fmaf(w[4 * k + 1], h.y, a1);
            a2 = fmaf(w[4 * k + 2], h.z, a2);
            a3 = fmaf(w[4 * k + 3], h.w, a3);
        }
        const float a = (a0 + a1) + (a2 + a3);
        if (j < 2 * H) gates[j] = sigmoid(x + a);
        __syncthreads();
        if (j >= 2 * H) {
            const int i = j - 2 * H;
            const float reset = gates[i], update = gates[H + i], before = state[i];
            const float fresh = tanhf(x + reset * a);
            state[i] = fresh + update * (before - fresh);
            if (first >= 0) {
                const size_t step = first + t;
                kept_state[step * H + i] = before;
                float* keep = kept_gates + step * 4 * H + i;
                keep[0] = reset;
                keep[H] = update;
                keep[2 * H] = fresh;
                keep[3 * H] = a;
            }
        }
        __syncthreads();
    }
    if (j < H) out[(size_t)row * H + j] = state[j];
}

// d_out: gradient of the last state [n, H]. d_states: of the state after each step [T, H], if every is not 0.
// Writes d_hidden [T, 3H] (gradient of W_hh h + b_hh), d_new [T, H] (of the input's part of new; for reset and update
// it is that of d_hidden), and d_start [n, H]. Thread g * H + k holds column k of gate g's part of W_hh.
extern "C" __global__ void __launch_bounds__(G, 1) gru_backward(
    const int* __restrict__ texts, const int* __restrict__ encoders, const int* __restrict__ at,
    const int* __restrict__ lengths,
    const float* __restrict__ weights,  // [encoders, 3H, H]: W_hh
    const float* __restrict__ kept_state, const float* __restrict__ kept_gates, const float* __restrict__ d_out,
    const float* __restrict__ d_states, int every, float* __restrict__ d_hidden, float* __restrict__ d_new,
    float* __restrict__ d_start)
{
    __shared__ float4 d_gates4[G / 4];
    __shared__ float parts[G];
    float* d_gates = (float*)d_gates4;
    const int row = blockIdx.x, j = threadIdx.x, gate = j / H, k = j % H;
    const int text = texts[row], first = at[row];
    if (text < 0 || first < 0) return;
    const int length = lengths[text];
    float w[H];
    const float* column = weights + (size_t)encoders[row] * G * H + (size_t)gate * H * H + k;
#pragma unroll
    for (int i = 0; i < H; i++) w[i] = column[i * H];
    float d = j < H ? d_out[(size_t)row * H + j] : 0.0f;
    float reset = 0, update = 0, fresh = 0, a = 0, before = 0;
    if (j < H && length > 0) {
        const size_t step = first + length - 1;
        const float* kept = kept_gates + step * 4 * H + j;
        reset = kept[0], update = kept[H], fresh = kept[2 * H], a = kept[3 * H], before = kept_state[step * H + j];
    }
    for (int t = length - 1; t >= 0; t--) {
        const size_t step = first + t;
        float through = 0.0f;
        if (j < H) {
            if (every) d += d_states[step * H + j];
            const float d_update = d * (before - fresh) * update * (1.0f - update);
            const float d_fresh = d * (1.0f - update) * (1.0f - fresh * fresh);
            const float d_reset = d_fresh * a * reset * (1.0f - reset);
            through = d * update;
            d_gates[j] = d_reset;
            d_gates[H + j] = d_update;
            d_gates[2 * H + j] = d_fresh * reset;
            float* hidden = d_hidden + step * G + j;
            hidden[0] = d_reset;
            hidden[H] = d_update;
            hidden[2 * H] = d_fresh * reset;
            d_new[step * H + j] = d_fresh;
            if (t > 0) {  // loads for the next step, while other threads multiply
                const float* kept = kept_gates + (step - 1) * 4 * H + j;
                reset = kept[0], update = kept[H], fresh = kept[2 * H], a = kept[3 * H];
                before = kept_state[(step - 1) * H + j];
            }
        }
        __syncthreads();
        float a0 = 0.0f, a1 = 0.0f, a2 = 0.0f, a3 = 0.0f;
#pragma unroll
        for (int i = 0; i < H / 4; i++) {
            const float4 g = d_gates4[gate * (H / 4) + i];
            a0 = fmaf(w[4 * i], g.x, a0);
            a1 = fmaf(w[4 * i + 1], g.y, a1);
            a2 = fmaf(w[4 * i + 2], g.z, a2);
            a3 = fmaf(w[4 * i + 3], g.w, a3);
        }
        parts[j] = (a0 + a1) + (a2 + a3);
        __syncthreads();
        if (j < H) d = through + (parts[j] + parts[H + j]) + parts[2 * H + j];
    }
    if (j < H) d_start[(size_t)row * H + j] = d;
}

// The gradient of `inputs`: for each word of each encoder, the sum over the steps that read it, in a fixed order.
// steps[starts[b] .. starts[b+1]) are the steps of block b = word * encoders + encoder.
extern "C" __global__ void __launch_bounds__(G) gru_inputs(
    const int* __restrict__ starts, const int* __restrict__ steps, const float* __restrict__ d_hidden,
    const float* __restrict__ d_new, float* __restrict__ d_inputs)
{
    const int block = blockIdx.x, j = threadIdx.x;
    const float* from = j < 2 * H ? d_hidden + j : d_new + (j - 2 * H);
    const size_t width = j < 2 * H ? G : H;
    const int end = starts[block + 1];
    float sum0 = 0.0f, sum1 = 0.0f, sum2 = 0.0f, sum3 = 0.0f;
    int i = starts[block];
    for (; i + 3 < end; i += 4) {
        sum0 += from[steps[i] * width];
        sum1 += from[steps[i + 1] * width];
        sum2 += from[steps[i + 2] * width];
        sum3 += from[steps[i + 3] * width];
    }
    for (; i < end; i++) sum0 += from[steps[i] * width];
    d_inputs[(size_t)block * G + j] = (sum0 + sum1) + (sum2 + sum3);
}
