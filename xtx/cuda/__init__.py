"""What learning does on a GPU in its own way: kernels, and steps recorded as CUDA graphs."""
