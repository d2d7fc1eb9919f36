"""``fully_shard`` on real ranks: training, memory below the model's size, deaths."""

import re
import sys
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.mpi
FOLDER = str(Path(__file__).parent)

TRAINING = """
import copy, statistics, sys
sys.path.insert(0, FOLDER)
from models import *
from tenon.distributed import get_communicator, init_device_mesh

communicator = get_communicator()
size = communicator.size
base = net()
losses, state = expected(base)
shapes = [(size,)] + [(2, size // 2)] * (size % 2 == 0)
for shape in shapes:
    model = shard(copy.deepcopy(base), mesh=init_device_mesh("cpu", shape), reshard_after_forward=True)
    optimizer = sgd(model)
    for i, loss in enumerate(losses):
        own = step(model, optimizer, *part(batch(i), communicator))
        mean = statistics.mean(communicator.all_gather(own).wait())
        assert abs(mean - loss) < 1e-5 * loss, (mean, loss)
    assert_equal_states(whole(model), state)
if communicator.rank == 0:
    print("equal on", size)
""".replace("FOLDER", repr(FOLDER))


@pytest.mark.parametrize(
    ("size", "communicator"),
    [
        # On two ranks by default: modules large enough for memory that the ranks share, below.
        pytest.param(2, "mpi", marks=pytest.mark.slow),
        pytest.param(4, "mpi", marks=pytest.mark.slow),
        pytest.param(3, "mpi-messages", marks=pytest.mark.slow),
        pytest.param(8, "mpi", marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_plain_modules(size, communicator):
    rows = {3: "9"}.get(size, "8")
    program = TRAINING.replace("expected(base)", f"expected(base, 3, {rows})").replace(
        "batch(i)", f"batch(i, {rows})"
    )
    done = launch(size, ["-c", program], TENON_COMMUNICATOR=communicator)

    assert f"equal on {size}" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_gathers_and_reductions_overlap_between_nodes():
    done = launch(4, ["-c", TRAINING], TENON_COMMUNICATOR="mpi", TENON_MPI_NODES="2")

    assert "equal on 4" in done.stdout, done.stdout + done.stderr


DEATHS = """
import os, signal, sys
sys.path.insert(0, FOLDER)
from models import *
from tenon.distributed import get_communicator

communicator = get_communicator()
model = shard(net(), reshard_after_forward=True)
optimizer = sgd(model)
name = {"gather": "all_gather_several", "reduction": "reduce_scatter_several"}[sys.argv[1]]


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


for i in range(5):
    communicator.step = i
    if i == 3 and communicator.rank == 1:
        setattr(type(communicator), "start_" + name, die)
    step(model, optimizer, *part(batch(i), communicator))
print("survived")
""".replace("FOLDER", repr(FOLDER))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["gather", "reduction"])
def test_a_rank_killed_while_others_communicate_ends_the_job_with_one_report(where):
    done = launch(2, ["-c", DEATHS, where])

    reports = re.findall(r"^=== tenon: (rank \d of \d on host .*) ===$", done.stderr, re.MULTILINE)
    assert len(reports) == 1 and "rank 1 of 2" in reports[0] and "was killed by SIGKILL" in reports[0], (
        done.stderr
    )
    assert done.returncode != 0 and "survived" not in done.stdout


DIFFERENT = """
import sys
sys.path.insert(0, FOLDER)
from models import *
from tenon.distributed import get_communicator

model = shard(net())
x, y = batch()
if get_communicator().rank:
    model.blocks[0](model.first.weight.to_local()[:1])
else:
    model(x)
""".replace("FOLDER", repr(FOLDER))


@pytest.mark.slow
def test_ranks_that_call_different_modules_are_told():
    done = launch(2, ["-c", DIFFERENT])

    assert "ranks disagree in collective call" in done.stderr, done.stderr
    assert re.search(r"all_gather\(.*named 'parameters of ", done.stderr), done.stderr


MEMORY = """
import resource, sys
import tenon as torch
from tenon import nn
from tenon.distributed import get_communicator
from tenon.distributed.fsdp import fully_shard

communicator = get_communicator()
width, layers = int(sys.argv[1]), int(sys.argv[2])
needed = 4 * layers * (width * width + width) * 4  # parameters, gradients and Adam's two states
limit = needed * 2 // 3
with torch.device("meta"):
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for layer in model:
    fully_shard(layer, reshard_after_forward=True)
fully_shard(model, reshard_after_forward=True)
model.to_empty(device="cpu")
for name, parameter in model.named_parameters():
    if parameter.ndim > 1:
        nn.init.normal_(parameter, std=width**-0.5)
    else:
        nn.init.zeros_(parameter)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
x = torch.ones(8, width)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = (model(x) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
if communicator.rank == 0:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(f"{needed / limit:.2f} times the limit of {limit >> 20} MiB, peak {peak >> 20} MiB, losses fall: {losses[-1] < losses[0]}")
"""


@pytest.mark.slow
def test_model_of_more_than_the_memory_limit_of_a_rank_trains_on_four():
    done = launch(4, ["-c", MEMORY, "4096", "10"])

    assert "1.50 times the limit" in done.stdout and "losses fall: True" in done.stdout, (
        done.stdout + done.stderr
    )


COMMON = """
import copy, statistics, sys
sys.path.insert(0, FOLDER)
from models import *
import tenon as torch
from tenon.distributed import get_communicator
from tenon.distributed.fsdp import FullyShardedDataParallel, fully_shard
from tenon.errors import ArgumentError

communicator = get_communicator()
base = net(width=600, blocks=2)
for block in base.blocks:
    block.up, block.down = torch.nn.Linear(600, 600), torch.nn.Linear(600, 600)
for name, parameter in base.named_parameters():
    torch.nn.init.normal_(parameter, 0, 0.02, generator=torch.Generator().manual_seed(len(name)))
losses, state = expected(base)
model = shard(copy.deepcopy(base), reshard_after_forward=True)
read_only = []

def look(module, inputs):
    for parameter in module.parameters(recurse=False):
        if parameter.numel() > 100000:
            read_only.append(not parameter.detach().numpy().flags.writeable)

for module in model.modules():
    module.register_forward_pre_hook(look)
optimizer = sgd(model)
for i, loss in enumerate(losses):
    own = step(model, optimizer, *part(batch(i), communicator))
    mean = statistics.mean(communicator.all_gather(own).wait())
    assert abs(mean - loss) < 1e-5 * loss, (mean, loss)
assert_equal_states(whole(model), state)
assert read_only and all(read_only), read_only

class Clamped(torch.nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-1, 1)
        return super().forward(x)

try:
    fully_shard(Clamped(600, 600))(torch.ones(1, 600))
except ArgumentError as error:
    assert "clamp_: the memory of this tensor of shape [600, 600] is read-only" in str(error), error
    assert "fully_shard has gathered" in str(error), error
else:
    raise AssertionError("a parameter that ranks have in common was modified")

from tenon.distributed.fsdp.gradient_windows import GradientWindows

windows = communicator.kept["fully_shard gradients"]
assert isinstance(windows, GradientWindows) and windows.take(1000) is not None
kept = windows.take(1000)
assert windows.take(1000) is None  # someone has an array in it
del kept
assert windows.take(1000) is not None

wrapped = FullyShardedDataParallel(torch.nn.Linear(600, 600, bias=False))
with FullyShardedDataParallel.summon_full_params(wrapped), torch.no_grad():
    wrapped.weight.fill_(2)
    wrapped.weight.add_(1)
assert (wrapped(torch.ones(1, 600)) == 1800).all()
print("common on", communicator.rank)
""".replace("FOLDER", repr(FOLDER))


@pytest.mark.slow
def test_large_modules_are_gathered_into_memory_that_the_ranks_share_and_nobody_writes_to():
    done = launch(2, ["-c", COMMON])

    assert "common on 0" in done.stdout and "common on 1" in done.stdout, done.stdout + done.stderr


NESTED = """
import copy
import tenon as torch
from tenon import nn
from tenon.distributed import get_communicator
from tenon.distributed.fsdp import fully_shard

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner, self.scale = nn.LayerNorm(16), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x):
        x = x + self.inner(self.norm(x))
        return x + self.inner(self.scale(x))

communicator = get_communicator()
for repetition in range(40):
    torch.manual_seed(repetition)
    plain = nn.Sequential(*[Block() for _ in range(3)])
    model = copy.deepcopy(plain)
    for block in model:  # the norms of a block wait for their gradients while its inner module has been reduced
        fully_shard(block.inner, reshard_after_forward=False)
        fully_shard(block, reshard_after_forward=False)
    fully_shard(model)
    x = torch.randn(2, 4, 16)
    plain(x.flatten(0, 1)).square().sum().backward()
    model(x[communicator.rank]).square().sum().backward()
    for (name, p), sharded in zip(plain.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(sharded.grad.full_tensor() * 2, p.grad, rtol=1e-3, atol=1e-3, msg=name)
print("equal on", communicator.rank)
"""


@pytest.mark.slow
def test_gradients_of_modules_around_others_are_those_of_plain_training():
    done = launch(2, ["-c", NESTED])

    assert "equal on 0" in done.stdout and "equal on 1" in done.stdout, done.stdout + done.stderr
