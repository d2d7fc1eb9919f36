"""Messages of tensors under torch.distributed's names: collectives, sends and receives, groups of ranks."""
