"""Train 30 steps with deterministic="world" for each engine and bucket size given; print the digests.

Then give the ranks different batches, and say how that was noticed.
"""

import hashlib
import sys

import numpy as np

import tenon
import tenon.distributed as dist
from tenon import nn
from tenon.errors import CollectiveMismatchError
from tenon.nn.functional import cross_entropy
from tenon.nn.parallel import DistributedDataParallel
from tenon.optim import AdamW
from tenon_mpi.communicator import MessageCommunicator, SharedCommunicator

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((150, 3, 8, 8)).astype(np.float32)
TARGETS = RNG.integers(0, 5, 150)
TARGETS[RNG.random(150) < 0.3] = -100  # masked


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Dropout2d(0.1),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 32),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(32, 5),
        )
        self.sometimes = nn.Parameter(tenon.zeros(5))

    def forward(self, x):
        out = self.layers(x + 0.1 * tenon.rand(1))  # drawn from the stream
        return out + self.sometimes if float(x[0, 0, 0, 0]) > 0 else out


def train(communicator, bucket_cap_mb):
    tenon.manual_seed(0)
    model = DistributedDataParallel(
        Net(),
        process_group=communicator,
        bucket_cap_mb=bucket_cap_mb,
        find_unused_parameters=True,
        deterministic="world",
    )
    optimizer = AdamW(model.parameters(), lr=0.01)
    order = np.random.default_rng(1)
    for step in range(30):
        rows = order.integers(0, 150, 48 if step % 3 else 21)
        batch = {"x": tenon.from_numpy(INPUTS[rows]), "y": tenon.from_numpy(TARGETS[rows])}
        for part in model.shards(batch, step=step):
            loss, count = dist.sum_and_count(cross_entropy, model(part["x"]), part["y"])
            model.backward(loss, count)
        mean = model.finish()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    digest = hashlib.sha256(np.float64(mean).tobytes())
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.numpy().tobytes())
    return model, digest.hexdigest()


engines = {"shared": SharedCommunicator, "messages": MessageCommunicator}
digests = []
for argument in sys.argv[1:]:
    engine, _, cap = argument.partition(":")
    model, digest = train(engines[engine](), float(cap))
    digests.append(digest)
everyone = [None] * dist.get_world_size()
dist.all_gather_object(everyone, digests)
noticed = ""
if dist.get_world_size() > 1:
    try:
        for rows in model.shards(list(range(dist.get_rank(), 8)), step=30):
            model.backward(model(tenon.from_numpy(INPUTS[rows])).sum(), len(rows))
        model.finish()
    except CollectiveMismatchError as error:
        noticed = str(error)
if dist.get_rank() == 0:
    print(*{digest for digests in everyone for digest in digests})
    print(noticed)
