"""Layers, one family per file; ``tenon.nn`` exports the names in each file's ``__all__``.

To add a layer, write its class in one of these files and list it in ``__all__``; a new family also needs its
line here.
"""

# ruff: noqa: F403 - each file has an __all__
from types import ModuleType
from typing import TYPE_CHECKING

from tenon.nn.layers.activation import *
from tenon.nn.layers.adaptive_softmax import *
from tenon.nn.layers.attention import *
from tenon.nn.layers.conv import *
from tenon.nn.layers.distance import *
from tenon.nn.layers.drop_path import *
from tenon.nn.layers.dropout import *
from tenon.nn.layers.embedding import *
from tenon.nn.layers.flatten import *
from tenon.nn.layers.instance_norm import *
from tenon.nn.layers.lazy import *
from tenon.nn.layers.likelihood import *
from tenon.nn.layers.linear import *
from tenon.nn.layers.loss import *
from tenon.nn.layers.margin_loss import *
from tenon.nn.layers.norm import *
from tenon.nn.layers.padding import *
from tenon.nn.layers.patch_embed import *
from tenon.nn.layers.pool import *
from tenon.nn.layers.pool_variants import *
from tenon.nn.layers.positional_encodings import *
from tenon.nn.layers.randomized_relu import *
from tenon.nn.layers.recurrent import *
from tenon.nn.layers.recurrent_cells import *
from tenon.nn.layers.resizing import *
from tenon.nn.layers.response_norm import *
from tenon.nn.layers.softmax import *
from tenon.nn.layers.sync_batch_norm import *
from tenon.nn.layers.transformer import *

if not TYPE_CHECKING:  # type checkers follow starred imports by themselves
    #: Importing a family has also bound its module in this namespace.
    __all__ = [
        name for part in list(vars().values()) if isinstance(part, ModuleType) for name in part.__all__
    ]
