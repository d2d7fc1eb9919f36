"""PyTorch's path ``torch.distributed.checkpoint``: checkpoints that every rank writes a part of, and that
load on any number of ranks and any mesh.

``save``, ``async_save`` and ``load`` take a state dict and a folder; ``state_dict.py`` makes state dicts that
do not depend on how a model is distributed, ``format_utils.py`` converts to and from one file. Start reading
at ``state_dict_saver.py``; planners (``planner.py``) decide who writes and reads what, storages
(``storage.py``) do it.
"""

from tenon.distributed.checkpoint.api import CheckpointException
from tenon.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from tenon.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from tenon.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from tenon.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from tenon.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from tenon.distributed.checkpoint.random_states import RandomStates
from tenon.distributed.checkpoint.state_dict_loader import load, load_state_dict, load_whole
from tenon.distributed.checkpoint.state_dict_saver import async_save, save, save_state_dict
from tenon.distributed.checkpoint.storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata",
    "CheckpointException",
    "ChunkStorageMetadata",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "HuggingFaceStorageReader",
    "HuggingFaceStorageWriter",
    "LoadPlan",
    "LoadPlanner",
    "Metadata",
    "RandomStates",
    "ReadItem",
    "SavePlan",
    "SavePlanner",
    "StorageReader",
    "StorageWriter",
    "TensorStorageMetadata",
    "WriteItem",
    "async_save",
    "load",
    "load_state_dict",
    "load_whole",
    "save",
    "save_state_dict",
]
