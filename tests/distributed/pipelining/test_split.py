"""``pipeline``: the stages compute what the model computes, under the names of its parameters."""

import itertools

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed.pipelining import Pipe, PipelineStage, SplitPoint, build_stage, pipe_split, pipeline
from tenon.distributed.pipelining.microbatch import merge_chunks
from tenon.distributed.replicas.data_parallel import DistributedDataParallel
from tenon.errors import ArgumentError, CaptureError, TenonWarning
from tenon.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Branches on values, which only a module that is called as a whole may."""

    def __init__(self, width=6):
        super().__init__()
        self.up, self.down = nn.Linear(width, 8), nn.Linear(8, width)

    def forward(self, x, mask=None):
        if x.sum() > 1e9:
            return x
        x = x + self.down(torch.relu(self.up(x)))
        return x if mask is None else x * mask


class Transformer(nn.Module):
    """Embeddings, blocks, a head; ``recompute`` checkpoints the blocks."""

    def __init__(self, blocks=4, width=6, recompute=False):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.position = nn.Parameter(torch.randn(12, width))
        self.register_buffer("shift", torch.randn(width))
        self.register_buffer("cache", torch.randn(width), persistent=False)
        self.layers = nn.ModuleList(Block(width) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)
        self.unused = nn.Linear(2, 2)
        self.recompute = recompute

    def forward(self, ids, mask=None, *, as_dict=False):
        rows, length = ids.shape
        if length > 12:
            raise ValueError(f"{length} tokens")
        x = self.embed(ids) + self.position[:length] + self.cache
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x, mask)
        x = self.norm(x) + self.shift.clone()
        logits = self.head(x).reshape(rows * length, 10)
        return {"logits": logits} if as_dict else logits


IDS = torch.arange(8).reshape(2, 4)


def check(model, pipe, args, kwargs=None):
    """The stages give the model's outputs and gradients; their names are the model's."""
    kwargs = kwargs or {}
    wanted, found = model(*args, **kwargs), pipe(*args, **kwargs)
    if isinstance(wanted, torch.Tensor):
        (found,) = found
    pick = (lambda o: o["logits"]) if isinstance(wanted, dict) else (lambda o: o)
    torch.testing.assert_close(pick(found), pick(wanted))
    gradients = [
        torch.autograd.grad(pick(o).square().mean(), list(model.parameters()), allow_unused=True)
        for o in (wanted, found)
    ]
    for name, one, other in zip(dict(model.named_parameters()), *gradients, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            torch.testing.assert_close(one, other, msg=name)
    names = [name for i in range(pipe.num_stages) for name in pipe.get_stage_module(i).state_dict()]
    assert sorted(set(names)) == sorted(model.state_dict())
    return names


CALLS = [
    ((IDS,), {}, True),
    ((IDS, torch.ones(6) * 2), {}, False),
    ((), {"ids": IDS, "mask": None}, False),
    ((IDS,), {"as_dict": True}, True),
    ((IDS,), {}, False),
]


@pytest.mark.parametrize(
    ("args", "kwargs", "recompute"),
    [pytest.param(*call, marks=[pytest.mark.slow] if i > 1 else []) for i, call in enumerate(CALLS)],
)
def test_split_at_modules(args, kwargs, recompute):
    model = Transformer(recompute=recompute)
    spec = {"layers.1": SplitPoint.BEGINNING, "layers.2": SplitPoint.END}

    pipe = pipeline(model, args, kwargs, split_spec=spec)

    assert isinstance(pipe, Pipe) and pipe.num_stages == 3 and pipe.replicated_params == []
    names = check(model, pipe, args, kwargs)
    assert len(names) == len(set(names))  # each in one stage
    assert "layers.1.up.weight" in pipe.get_stage_module(1).state_dict()
    assert pipe.get_stage_module(1).layers.get_submodule("1") is model.layers[1]
    assert dict(pipe.get_stage_module(0).named_buffers()).keys() >= {"cache"}
    assert "checkpoint" in pipe.get_stage_module(1).code or not recompute


def test_split_in_code_inside_of_modules():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            x = self.a(x)
            pipe_split()
            return self.b(x)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner, self.block = nn.Linear(6, 6), Inner(), Block()

        def forward(self, x):
            x = self.first(x)
            x = x + self.inner(x)
            pipe_split()
            return self.block(x)

    model, x = Outer(), torch.randn(3, 6)
    pipe = pipeline(model, (x,))

    assert pipe.num_stages == 3
    check(model, pipe, (x,))
    assert "first" in pipe.get_stage_module(1).code  # the residual passes through the stage
    assert list(pipe.get_stage_module(2).state_dict()) == [f"block.{n}" for n in Block().state_dict()]


def test_values_cross_several_stages_and_sizes_are_computed_again():
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
            self.weight = nn.Parameter(torch.randn(6, 6))

        def forward(self, x, y):
            one, two = torch.chunk(x, 2)
            rows = one.shape[0]
            kept = self.layers[0](one)
            pipe_split()
            x = self.layers[1](kept)
            pipe_split()
            x = self.layers[2](x).reshape(rows, 2, 3)
            pipe_split()
            return self.layers[3](x.reshape(rows, 6) + kept) @ self.weight + two * y, y

    model, args = Skips(), (torch.randn(4, 6), torch.randn(6))
    pipe = pipeline(model, args)

    found, wanted = pipe(*args), model(*args)
    assert pipe.num_stages == 4 and found[1] is args[1]
    torch.testing.assert_close(found[0], wanted[0])
    larger = (torch.randn(10, 6), args[1])
    torch.testing.assert_close(pipe(*larger)[0], model(*larger)[0])


def test_sequential_models_and_policies():
    model, x = nn.Sequential(*[nn.Linear(6, 6) for _ in range(5)]), torch.randn(2, 6)
    check(model, pipeline(model, (x,), split_spec={"2": SplitPoint.BEGINNING}), (x,))
    assert pipeline(model, (x,)).num_stages == 1

    def policy(graph_module):
        for node in graph_module.graph.nodes:
            if node.target in ("1", "3"):
                with graph_module.graph.inserting_after(node):
                    graph_module.graph.call_function(pipe_split)
        return graph_module

    pipe = pipeline(model, (x,), split_policy=policy)
    assert [list(pipe.get_stage_module(i).state_dict()) for i in (0, 2)] == [
        ["0.weight", "0.bias", "1.weight", "1.bias"],
        ["4.weight", "4.bias"],
    ]
    check(model, pipe, (x,))


def test_even_stages():
    widths = [4, 30, 2, 2, 2, 10, 10]
    model = nn.Sequential(*[nn.Linear(n, m) for n, m in itertools.pairwise(widths)])
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in model]

    def parts(starts):
        ends = [*starts, len(sizes)]
        return [sum(sizes[i:j]) for i, j in itertools.pairwise([0, *ends])]

    for count in (1, 2, 3, 6):
        pipe = pipeline(model, (torch.ones(1, 4),), num_stages=count)
        stages = [pipe.get_stage_module(i) for i in range(pipe.num_stages)]
        found = [sum(p.numel() for p in stage.parameters()) for stage in stages]
        smallest = min(max(parts(s)) for s in itertools.combinations(range(1, len(sizes)), count - 1))
        assert len(found) == count and max(found) == smallest
    model_of_lists = Transformer()
    check(model_of_lists, pipeline(model_of_lists, (IDS,), num_stages=3), (IDS,))
    with pytest.raises(ArgumentError, match="Sequential has 6 members"):
        pipeline(model, (torch.ones(1, 4),), num_stages=7)


def test_splitting_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 6))
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    state = torch.get_rng_state()

    pipe = pipeline(
        model, (torch.randn(4, 6, generator=torch.Generator()),), split_spec={"2": SplitPoint.BEGINNING}
    )

    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model[1].training and model[2].training and pipe.get_stage_module(1).training
    pipe.get_stage_module(1).eval()
    assert not model[2].training
    assert not any("hook" in key and value for m in model.modules() for key, value in vars(m).items())


def test_models_on_the_meta_device_are_split_without_memory():
    with torch.device("meta"):
        model = nn.Sequential(nn.Embedding(10, 6), nn.LayerNorm(6), nn.Linear(6, 10))

    pipe = pipeline(model, (IDS,), split_spec={"1": SplitPoint.BEGINNING})

    stage = pipe.get_stage_module(1).to_empty(device="cpu")
    assert stage.get_submodule("2").weight.device.type == "cpu" and model[0].weight.device.type == "meta"


def test_shared_parameters_are_reported():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            x = self.embed(ids)
            pipe_split()
            return self.head(x)

    with pytest.warns(TenonWarning, match="embed.weight in submod_0, head.weight in submod_1.*all_reduce"):
        pipe = pipeline(Tied(), (IDS,))
    assert pipe.replicated_params == [{"submod_0": "embed.weight", "submod_1": "head.weight"}]


def test_stages_of_a_pipe():
    model, x = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), torch.randn(2, 6)
    pipe = pipeline(model, (x,), split_spec={"1": SplitPoint.BEGINNING})
    info = pipe.info()

    assert info.num_stages == 2 and [n.target for n in info.graph.nodes if n.op == "call_module"] == [
        "submod_0",
        "submod_1",
    ]
    for stage in (pipe.build_stage(1, "cpu"), build_stage(pipe.get_stage_module(1), 1, info, "cpu")):
        assert isinstance(stage, PipelineStage) and stage.is_last and not stage.is_first
        assert stage.submod is pipe.get_stage_module(1)
    assert "submod_0" in str(pipe)
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match=f"Invalid stage index {wrong}"):
            pipe.get_stage_module(wrong)
    assert isinstance(pipe(x), tuple)
    torch.testing.assert_close(merge_chunks([pipe(x[:1]), pipe(x[1:])], None), pipe(x))


class Mode(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode, self.a, self.b = mode, nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = self.a(x)
        pipe_split()
        if self.mode == "random":
            x = x + torch.randn(6)
        if self.mode == "no_grad":
            with torch.no_grad():
                x = self.b(x)
        if self.mode == "autocast":
            with torch.autocast("cpu"):
                x = self.b(x)
            x = x.float()
        if self.mode == "value" and x.sum() > 0:
            x = x + 1
        if self.mode == "model":
            x = self.b(x[:, :2])
        return self.b(x)


@pytest.mark.parametrize(
    ("mode", "error", "message"),
    [
        ("random", CaptureError, "Mode between its split points cannot be captured: it draws random numbers"),
        ("no_grad", CaptureError, "it computes in a block of no_grad, enable_grad or autocast"),
        ("autocast", CaptureError, "it computes in a block of no_grad, enable_grad or autocast"),
        ("value", CaptureError, "(?s)cannot be used as inputs to control flow.*Move it into a submodule"),
        ("model", Exception, r"2.*6|shapes|inner sizes"),
    ],
)
def test_code_that_cannot_be_captured(mode, error, message):
    with pytest.raises(error, match=message):
        pipeline(Mode(mode), (torch.randn(2, 6),))


def test_split_points_that_do_not_exist():
    model, x = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)), torch.randn(2, 6)
    begin = SplitPoint.BEGINNING
    for spec, message in (
        ({"3": begin}, "Specified target '3' referenced nonexistent module of Sequential"),
        ({"": begin}, "Specified target ''"),
        ({"1": "BEGINNING"}, "Unknown split point type"),
        ({"0": begin}, "stage 0 of 2 would be empty: there is a split point before the first computation"),
        ({"1": SplitPoint.END}, "stage 1 of 2 would be empty"),
    ):
        with pytest.raises(ArgumentError, match=message):
            pipeline(model, (x,), split_spec=spec)
    with pytest.raises(ArgumentError, match=r"unused is not called by Transformer\.forward"):
        pipeline(Transformer(), (IDS,), split_spec={"unused": begin})
    with pytest.raises(ArgumentError, match="Cannot specify both `split_spec` and `split_policy`"):
        pipeline(model, (x,), split_spec={"1": begin}, split_policy=lambda m: m)
    with pytest.raises(ArgumentError, match="split_policy returned a NoneType"):
        pipeline(model, (x,), split_policy=lambda m: None)


def test_models_that_cannot_be_split_any_more():
    x, spec = torch.randn(2, 6), {"1": SplitPoint.BEGINNING}
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    handle = model.register_forward_hook(lambda *_: None)
    with pytest.raises(ArgumentError, match=r"the model, a Sequential, has a split point in it, and hooks"):
        pipeline(model, (x,), split_spec=spec)
    handle.remove()
    wrapped = DistributedDataParallel(model)
    with pytest.raises(ArgumentError, match=r"is data parallel already\. Split the plain model first"):
        pipeline(wrapped, (x,), split_spec={"module.1": SplitPoint.BEGINNING})


def test_values_that_are_not_tensors_cannot_cross():
    class Pair(nn.Module):
        def forward(self, x):
            return {"x": x, "n": 3}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.pair, self.last = Pair(), Block()

        def forward(self, x):
            pair = self.pair(x)
            pipe_split()
            return self.last(pair["x"]) + self.last(x) * pair["n"]

    with pytest.raises(ArgumentError, match=r"stage 1 needs '(pair|getitem)\w*' of stage 0, a (dict|int)"):
        pipeline(Model(), (torch.randn(2, 6),))
