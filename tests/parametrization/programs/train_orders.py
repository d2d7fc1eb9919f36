"""Train layers and smaller models on the ranks' shares of one batch; rank 0 saves the results to argv[1]."""

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import smaller_models
from orders import ORDERS, built, trained

import tenon
import tenon.distributed as dist
from tenon.nn.parallel import DistributedDataParallel
from tenon.quantization import convert

rank, size = dist.get_rank(), dist.get_world_size()
states = {}


def learnt(name, model, x):
    """Train the wrapped ``model`` on a share of ``x``; all ranks have to end with the same parameters."""
    model = trained(DistributedDataParallel(model), x[rank::size]).module
    state = {key: t.numpy() for key, t in model.state_dict().items()}
    digests = [None] * size
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    dist.all_gather_object(digests, digest)
    assert len(set(digests)) == 1, f"{name}: the ranks have learnt different things"
    states.update({f"{name}/{key}": tenon.from_numpy(a) for key, a in state.items()})
    return model


x = tenon.from_numpy(np.random.default_rng(1).standard_normal((8, 4)))
for order in ORDERS:
    learnt("+".join(order), built(order).double(), x)
for name, make in smaller_models.MODELS.items():
    model, example = make()
    model = learnt(name, model, example)
    if name == "prepared":
        whole = convert(model, example)
        states["converted/outputs"] = whole(example)
        states |= {f"converted/{key}": t for key, t in whole.state_dict().items()}
if rank == 0:
    tenon.save(states, sys.argv[1])
