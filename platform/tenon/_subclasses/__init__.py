"""PyTorch's path ``torch._subclasses``: ``meta_utils.assert_metadata_eq`` and the names of fake tensors."""
