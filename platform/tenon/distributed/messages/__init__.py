"""torch.distributed's functions on tensors: collectives, point-to-point operations, process groups."""
