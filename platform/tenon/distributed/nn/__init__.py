"""Collectives with gradients, under torch's module names."""

from tenon.distributed.nn.functional import all_gather as all_gather
from tenon.distributed.nn.functional import all_reduce as all_reduce
from tenon.distributed.nn.functional import all_to_all as all_to_all
from tenon.distributed.nn.functional import all_to_all_single as all_to_all_single
from tenon.distributed.nn.functional import broadcast as broadcast
from tenon.distributed.nn.functional import gather as gather
from tenon.distributed.nn.functional import reduce as reduce
from tenon.distributed.nn.functional import reduce_scatter as reduce_scatter
from tenon.distributed.nn.functional import scatter as scatter
