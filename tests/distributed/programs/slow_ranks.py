"""Train on all ranks, of which some are slow until that has been said, then none until that has been said, too.

The first argument is where they are slow, ``compute`` or ``data``; the second is the ranks, such as ``2,3``, or empty;
the third how many seconds each may take at most.
"""

import sys
import time

import tenon as torch
from tenon import nn
from tenon.data import DataLoader, Dataset
from tenon.distributed import all_reduce, get_rank
from tenon.distributed.processes import slow_ranks

kind, ranks, limit = sys.argv[1], sys.argv[2].split(","), float(sys.argv[3])
heard = 0
said = []
say = slow_ranks.say


def hear(found):
    say(found)
    said.append(found)


slow_ranks.say = hear


def is_slow(where):
    return str(get_rank()) in ranks and kind == where and heard == 0


class Samples(Dataset):
    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        if is_slow("data"):
            time.sleep(0.01)
        return torch.ones(8), torch.ones(1)


def compute():
    time.sleep(0.04 if is_slow("compute") else 0.005)


model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
begun = time.monotonic()
for inputs, targets in DataLoader(Samples(), batch_size=4):
    loss = (model(inputs) - targets).square().mean()
    compute()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = torch.tensor([float(len(said)), float(get_rank() == 0 and time.monotonic() - begun > limit)])
    all_reduce(state)  # Rank 0 alone hears what is said.
    heard = int(state[0].item())
    if heard == 2 or state[1].item():
        break
