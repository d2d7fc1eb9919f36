"""``python saving_in_a_loop.py FOLDER WAY``: save a state of equal numbers, another one in each step, for ever.

The numbers of a checkpoint are all those of one step, on every rank, or it is torn. Prints each step whose
checkpoint is complete. WAY is "save", "async" or "background".
"""

import sys

import tenon as torch
import tenon.distributed as dist
from tenon.distributed import checkpoint as dcp
from tenon.distributed.checkpoint.staging import DefaultStager, StagingOptions
from tenon.distributed.tensor import Shard, distribute_tensor

folder, way = sys.argv[1:]
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
weights = [distribute_tensor(torch.zeros(1000, 37), mesh, [Shard(0)]) for _ in range(8)]
plain = torch.zeros(5000)
options = {}
if way == "background":
    options["async_stager"] = DefaultStager(StagingOptions(use_async_staging=True))
step, before = 0, None
try:
    last = dcp.load_whole("step", checkpoint_id=folder)
except dcp.CheckpointException:
    last = {"step": 0}
step = last["step"]
while True:
    step += 1
    for tensor in (*weights, plain):
        tensor.fill_(float(step))
    state = {"weights": weights, "plain": plain, "step": step}
    if way == "save":
        dcp.save(state, checkpoint_id=folder)
        complete = step
    else:
        complete = None if before is None else step - 1
        if before is not None:
            before.result()
        saved = dcp.async_save(state, checkpoint_id=folder, **options)
        before = getattr(saved, "upload_completion", saved)
        if way == "background":
            saved.staging_completion.result()
    if complete is not None and dist.get_rank() == 0:
        print("complete", complete, flush=True)
