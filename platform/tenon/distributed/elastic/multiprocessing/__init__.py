"""PyTorch's path ``torch.distributed.elastic.multiprocessing``."""
