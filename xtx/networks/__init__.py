"""Neural networks and losses: tensors in, tensors out."""
