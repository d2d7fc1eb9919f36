"""Join, PowerSGD, local SGD and collectives of plain Python values, under ``torch.distributed``'s names."""
