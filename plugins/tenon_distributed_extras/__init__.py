"""PowerSGD, local SGD and collectives of plain Python values, with ``torch.distributed``'s names."""
