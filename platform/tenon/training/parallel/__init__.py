"""The section ``[parallel]``: models of which each rank has a part, by shards, by tensors and by stages."""
