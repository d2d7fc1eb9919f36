"""PyTorch's ``torch._inductor.config``: settings of its code generator, stored without effect."""

from types import SimpleNamespace

coordinate_descent_tuning = False
coordinate_descent_check_all_directions = False
epilogue_fusion = True
fx_graph_cache = True
max_autotune = False
shape_padding = True
conv_1x1_as_mm = False
force_fuse_int_mm_with_mul = False
use_mixed_mm = True
triton = SimpleNamespace(unique_kernel_names=True, cudagraphs=False, cudagraph_trees=True)
