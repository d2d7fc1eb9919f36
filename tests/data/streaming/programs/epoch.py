"""Ranks that read some batches of an epoch and save the state of the loader, or continue from one that was saved.

    mpirun -n N python epoch.py ORDER URL CACHE STATE OUT BATCHES

Each rank writes the numbers of the samples that it has read, a line for each batch, to ``OUT.RANK``. BATCHES of -1 reads to the end.
"""

import itertools
import sys
import warnings
from pathlib import Path

import tenon
import tenon.distributed as dist
from tenon.data import DataLoader
from tenon.data.streaming import ShardSampler, StreamingDataset
from tenon.utils.data import DistributedSampler

order, url, cache, state, out, batches = sys.argv[1:]
warnings.simplefilter("ignore")  # more workers than cores
dataset = StreamingDataset(url, fields=("cls", "npy"), cache_dir=cache, cache_size=40_000, fetch="shard")
if order == "shards":
    sampler = ShardSampler(dataset, seed=5, shards_at_once=3)
else:
    sampler = DistributedSampler(dataset, seed=5, exact=True)
sampler.set_epoch(2)
loader = DataLoader(
    dataset, 2, sampler=sampler, num_workers=dist.get_rank() % 2
)  # of every other rank a process
if int(batches) < 0:
    loader.load_state_dict(tenon.load(state))
lines = []
iteration = iter(loader)
for numbers, arrays in itertools.islice(iteration, int(batches)) if int(batches) >= 0 else iteration:
    assert (arrays == numbers[:, None]).all()
    lines.append(" ".join(map(str, numbers.tolist())))
if int(batches) >= 0 and dist.get_rank() == 0:
    tenon.save(loader.state_dict(), state)
Path(f"{out}.{dist.get_rank()}").write_text("\n".join(lines))
dist.barrier()
