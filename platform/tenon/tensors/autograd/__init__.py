"""PyTorch's view of the engine's autograd: passes, nodes and edges, hooks on saved tensors."""
