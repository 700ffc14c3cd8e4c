"""Learning on a GPU: hand-written kernels, and steps recorded as CUDA graphs."""
