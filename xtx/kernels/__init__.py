"""Hand-written C and CUDA. Tensors and numbers of texts only."""
