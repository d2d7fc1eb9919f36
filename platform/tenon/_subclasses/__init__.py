"""PyTorch's path ``torch._subclasses``: of it ``meta_utils.assert_metadata_eq`` only, for tests."""
