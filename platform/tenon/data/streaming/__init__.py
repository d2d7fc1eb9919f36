"""Data in shards: tar files as WebDataset's, safetensors, Parquet; on disk or at a URL, shuffled exactly,
resumed to the sample.

``dataset.py`` is the data set; ``indexing.py`` finds where samples are, ``tar.py``, ``rows.py`` and
``parquet.py`` read the formats, ``locations.py`` and ``cache.py`` the bytes. Guide:
docs/guide/streaming-data.md.
"""

from __future__ import annotations

from tenon.data.streaming.dataset import StreamingDataset as StreamingDataset
from tenon.data.streaming.indexing import write_index as write_index
from tenon.data.streaming.sampler import ShardSampler as ShardSampler
from tenon.data.streaming.writer import ShardWriter as ShardWriter
