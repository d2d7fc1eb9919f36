# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.tensor.parallel import ColwiseParallel as ColwiseParallel
from tenon.distributed.tensor.parallel import ParallelStyle as ParallelStyle
from tenon.distributed.tensor.parallel import PrepareModuleInput as PrepareModuleInput
from tenon.distributed.tensor.parallel import PrepareModuleInputOutput as PrepareModuleInputOutput
from tenon.distributed.tensor.parallel import PrepareModuleOutput as PrepareModuleOutput
from tenon.distributed.tensor.parallel import RowwiseParallel as RowwiseParallel
from tenon.distributed.tensor.parallel import SequenceParallel as SequenceParallel
from tenon.distributed.tensor.parallel.parallel_style import StyleError as StyleError
from tenon.distributed.tensor.parallel.parallel_style import as_placed as as_placed
from tenon.distributed.tensor.parallel.parallel_style import first_input as first_input
