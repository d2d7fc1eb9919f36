"""PyTorch's path ``torch._logging``: what its CI is told of, and nobody listens to here."""
