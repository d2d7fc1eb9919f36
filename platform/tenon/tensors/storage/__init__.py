"""The memory behind tensors: as bytes, as numbers of one dtype, and under PyTorch's legacy class names."""
