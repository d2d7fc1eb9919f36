"""Tensor and sequence parallel: plans, styles, what is sent, and training that equals that of plain models."""

import copy
import sys
import threading
import warnings
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import fully_shard
from tenon.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from tenon.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from tenon.errors import ArgumentError, IndexRangeError, ModuleValueError, TenonWarning, UnsupportedError

sys.path.insert(0, str(Path(__file__).parent))

from transformer import (
    assert_equal_states,
    batch,
    sequence_plan,
    tensor_plan,
    train,
    trained,
    transformer,
    whole,
)

pytestmark = pytest.mark.together
functional = nn.functional
_SEEDING = threading.Lock()


def on_mesh(size, work):
    """The results of ``work(mesh)`` on all ranks of a mesh of one dimension."""
    return run_ranks(size, lambda communicator: work(init_device_mesh("cpu", (size,))))


# --- training ---


@pytest.mark.parametrize(
    "plan, tied",
    [
        (tensor_plan, True),
        (sequence_plan, False),
        pytest.param(tensor_plan, False, marks=pytest.mark.slow),
        pytest.param(sequence_plan, True, marks=pytest.mark.slow),
        pytest.param(lambda: sequence_plan(False), True, marks=pytest.mark.slow),
    ],
    ids=["tensor-tied", "sequence", "tensor", "sequence-tied", "dtensors-tied"],
)
def test_training_is_that_of_the_plain_model(plan, tied):
    base, data = transformer(tied=tied), batch()
    losses, state = trained(base, *data)

    def work(mesh):
        model = parallelize_module(copy.deepcopy(base), mesh, plan())
        assert (model.head.weight is model.embed.weight) is tied
        with warnings.catch_warnings():
            warnings.simplefilter("error", TenonWarning)  # all ops have rules
            return train(model, *data), whole(model)

    for found, result in on_mesh(2, work):
        assert found == pytest.approx(losses, rel=1e-5)
        assert_equal_states(result, state)


def test_sequences_that_ranks_split_unevenly():
    base, data = transformer(), batch(length=5)
    losses, state = trained(base, *data)

    def work(mesh):
        model = parallelize_module(copy.deepcopy(base), mesh, sequence_plan(local=False))
        return train(model, *data), whole(model)

    for found, result in on_mesh(2, work):
        assert found == pytest.approx(losses, rel=1e-5)
        assert_equal_states(result, state)


def test_dropout_of_a_split_sequence_draws_the_numbers_of_the_whole():
    torch.manual_seed(7)
    expected = nn.Dropout(0.5)(torch.ones(2, 6, 3))

    def work(mesh):
        dropout = parallelize_module(nn.Dropout(0.5), mesh, SequenceParallel(use_local_output=True))
        part = torch.ones(2, 6, 3).chunk(2, 1)[mesh.get_local_rank()]
        with _SEEDING:  # threads share the generator
            torch.manual_seed(7)
            return dropout(part)

    assert torch.equal(torch.cat(on_mesh(2, work), 1), expected)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("bias", [True, False])
def test_a_pair_of_linear_layers(size, bias):
    """Also 7 features on 2, 3 and 4 ranks."""
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(5, 7, bias), nn.Tanh(), nn.Linear(7, 3, bias))
    x = torch.randn(4, 5)

    def run(model):
        given = x.clone().requires_grad_()
        y = model(given)
        y.square().sum().backward()
        return y, given.grad, [p.grad for p in model.parameters()]

    expected = run(copy.deepcopy(base))

    def work(mesh):
        plan = {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()}
        y, gradient, gradients = run(parallelize_module(copy.deepcopy(base), mesh, plan))
        return y, gradient, [g.full_tensor() for g in gradients]

    for found in on_mesh(size, work):
        torch.testing.assert_close(found, expected)


# --- what is sent ---


def test_a_pair_of_layers_sends_one_sum_each_way(calls):
    def work(mesh):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        x = torch.randn(3, 4, requires_grad=True)
        if mesh.get_rank() == 0:
            calls.append(None)
        y = model(x)
        forward = len(calls)
        y.sum().backward()
        return forward

    assert on_mesh(2, work)[0] == 2
    assert calls[1:] == ["all_reduce", "all_reduce"]


def test_a_split_sequence_is_gathered_and_reduce_scattered(calls):
    back = Shard(1)

    def work(mesh):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        plan = {"0": ColwiseParallel(input_layouts=back), "2": RowwiseParallel(output_layouts=back)}
        parallelize_module(model, mesh, plan)
        x = torch.randn(2, 3, 4, requires_grad=True)
        if mesh.get_rank() == 0:
            calls.append(None)
        model(x).sum().backward()
        return x.grad.shape

    assert on_mesh(2, work)[0] == (2, 3, 4)
    assert calls[1:] == ["all_gather", "reduce_scatter"] * 2


def test_scores_that_are_split_by_classes_are_not_gathered(calls):
    """The maximum, the sum of exponentials and the loss, and nothing in the backward pass."""

    def work(mesh):
        scores = distribute_tensor(torch.randn(3, 6), mesh, [Shard(1)]).requires_grad_()
        if mesh.get_rank() == 0:
            calls.append(None)
        with loss_parallel():
            loss = functional.cross_entropy(scores, torch.tensor([0, 5, 3]))
            loss.item()
            forward = calls[1:]
            loss.backward()
        return forward, scores.grad.placements

    forward, placements = on_mesh(2, work)[0]
    assert placements == (Shard(1),)
    assert forward == ["all_reduce"] * 3 and calls[1:] == forward


# --- losses ---

LOSSES = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "ignored": {"ignore_index": 1},
    "weighted": {"weight": torch.arange(1.0, 8.0)},
    "weighted, ignored, none": {"weight": torch.arange(1.0, 8.0), "ignore_index": 6, "reduction": "none"},
}


@pytest.mark.parametrize("options", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 7, 3)], ids=str)
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_losses_of_split_classes(size, shape, options):
    torch.manual_seed(2)
    scores = torch.randn(*shape, requires_grad=True)
    target = torch.randint(0, 7, (shape[0], *shape[2:]) if len(shape) > 1 else ())
    expected = functional.cross_entropy(scores, target, **options)
    expected.sum().backward()
    axis = min(1, len(shape) - 1)

    def work(communicator):
        results = []
        meshes = [((2,), [Shard(axis)]), ((4,), [Shard(axis)])]
        if axis:
            meshes.append(((2, 2), [Shard(0), Shard(1)]))
        for sizes, placements in meshes:
            if communicator.size != torch.tensor(sizes).prod().item():
                continue
            mesh = init_device_mesh("cpu", sizes)
            split = distribute_tensor(scores.detach(), mesh, placements).requires_grad_()
            given = target
            if len(sizes) == 2:
                given = distribute_tensor(target, mesh, [Shard(0), Replicate()])
            with loss_parallel():
                loss = functional.cross_entropy(split, given, **options)
                loss.sum().backward()
            results.append((loss.full_tensor(), split.grad.full_tensor()))
        return results

    for found, gradient in [r for results in run_ranks(size, work) for r in results]:
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradient, scores.grad)


def test_targets_that_are_no_classes_are_named():
    def work(mesh):
        scores = distribute_tensor(torch.zeros(2, 6), mesh, [Shard(1)])
        with loss_parallel():
            functional.cross_entropy(scores, torch.tensor([0, 7]))

    with pytest.raises(IndexRangeError, match=r"Target 7 is out of bounds. There are 6 classes"):
        on_mesh(2, work)


def test_plain_targets_are_refused_outside_of_the_block():
    def work(mesh):
        scores = distribute_tensor(torch.zeros(2, 6), mesh, [Shard(1)])
        with loss_parallel():
            functional.cross_entropy(scores, torch.tensor([0, 5]))
            with pytest.raises(ArgumentError, match="got mixed"):
                scores + torch.zeros(2, 6)
        functional.cross_entropy(scores, torch.tensor([0, 5]))

    with pytest.raises(ArgumentError, match=r"cross_entropy: got mixed torch.Tensor and DTensor"):
        on_mesh(2, work)


# --- styles ---


@pytest.mark.parametrize("layout", [None, Replicate(), Shard(0), Shard(1)], ids=str)
@pytest.mark.parametrize("output", [None, Replicate(), Shard(0), Shard(1)], ids=str)
@pytest.mark.parametrize("style", [ColwiseParallel, RowwiseParallel])
@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_layouts_of_layers(kind, style, output, layout):
    torch.manual_seed(0)
    base = nn.Linear(4, 6) if kind == "linear" else nn.Embedding(8, 6)
    x = torch.randn(2, 4) if kind == "linear" else torch.randint(0, 8, (2, 4))
    expected = base(x)
    default = Shard(-1) if style is RowwiseParallel else Replicate()
    given = Replicate() if layout is None and kind == "embedding" else layout or default

    def work(mesh):
        own = style(input_layouts=given, output_layouts=output)
        layer = parallelize_module(copy.deepcopy(base), mesh, own)
        result = layer(distribute_tensor(x, mesh, [given]).to_local())
        placed = output or (Shard(-1) if style is ColwiseParallel else Replicate())
        same = layer(distribute_tensor(x, mesh, [given]))  # a DTensor
        assert torch.equal(same, result)
        return DTensor.from_local(result, mesh, [placed]).full_tensor()

    for result in on_mesh(2, work):
        torch.testing.assert_close(result, expected)


class Two(nn.Module):
    """Two inputs, one by keyword, and two outputs."""

    def forward(self, x, y, *, z=None):
        self.kinds = [type(t).__name__ for t in (x, y, z)]
        return x * 2 + (0 if z is None else z), y


def test_inputs_and_outputs_are_converted():
    x = torch.arange(8.0).reshape(4, 2)

    def work(mesh):
        module = Two()
        style = PrepareModuleInputOutput(
            input_layouts=(Shard(0), None),
            desired_input_layouts=(Replicate(), None),
            input_kwarg_layouts={"z": Replicate()},
            desired_input_kwarg_layouts={"z": Shard(1)},
            output_layouts=(Replicate(), None),
            desired_output_layouts=(Shard(1), None),
        )
        parallelize_module(module, mesh, style)
        part = distribute_tensor(x, mesh, [Shard(0)]).to_local()
        doubled, other = module(part, 3, z=torch.ones(4, 2))
        assert module.kinds == ["DTensor", "int", "DTensor"] and other == 3
        return DTensor.from_local(doubled, mesh, [Shard(1)]).full_tensor()

    for result in on_mesh(2, work):
        assert torch.equal(result, x * 2 + 1)


def test_local_inputs():
    def work(mesh):
        module = Two()
        parallelize_module(
            module,
            mesh,
            PrepareModuleInput(
                input_layouts=(Shard(0), None),
                desired_input_layouts=(Replicate(), None),
                use_local_output=True,
            ),
        )
        x, _ = module(torch.ones(1, 2), None)
        return module.kinds[0], x.shape

    assert on_mesh(2, work)[0] == ("Tensor", (2, 2))


def test_pruned_and_parametrized_layers():
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    nn.utils.parametrizations.weight_norm(base[0])
    nn.utils.prune.l1_unstructured(base[1], "weight", 0.5)
    x = torch.randn(3, 4)
    plain = copy.deepcopy(base)
    expected = plain(x)
    expected.sum().backward()

    def work(mesh):
        model = parallelize_module(
            copy.deepcopy(base), mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()}
        )
        y = model(x)
        y.sum().backward()
        assert model[1].weight_mask.placements == model[1].weight_orig.placements == (Shard(1),)
        return y, {name: p.grad.full_tensor() for name, p in model.named_parameters()}

    for y, gradients in on_mesh(2, work):
        torch.testing.assert_close(y, expected)
        for name, parameter in plain.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad)


def test_parameters_are_those_of_the_source_rank():
    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        layer = nn.Linear(2, 2)
        nn.init.constant_(layer.weight, mesh.get_rank())
        found = []
        for source in (1, None):
            own = parallelize_module(copy.deepcopy(layer), mesh, ColwiseParallel(), src_data_rank=source)
            found.append(own.weight.to_local()[0, 0].item())
        return found

    assert run_ranks(2, work) == [[1, 0], [1, 1]]


def test_meta_parameters_need_no_memory():
    def work(mesh):
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        assert model[0].weight.device.type == "meta"
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            nn.init.ones_(parameter)
        return model(torch.ones(1, 4)), model[0].weight.to_local().shape

    for y, shape in on_mesh(2, work):
        assert torch.equal(y, torch.full((1, 4), 31.0)) and shape == (3, 4)


def test_styles_of_ones_own():
    class Doubled(ParallelStyle):
        _shards = False

        def _apply(self, module, device_mesh):
            module.register_forward_hook(lambda m, inputs, output: output * device_mesh.size())
            return module

    def work(mesh):
        model = nn.Sequential(nn.Linear(1, 1, bias=False))
        nn.init.ones_(model[0].weight)
        parallelize_module(model, mesh, {"0": RowwiseParallel(input_layouts=Replicate()), "?": Doubled()})
        return model(torch.ones(1, 1)).item()

    assert on_mesh(2, work) == [2, 2]


def test_representations():
    assert repr(ColwiseParallel()) == (
        "ColwiseParallel(input_layouts=(Replicate(),), output_layouts=(Shard(dim=-1),), use_local_output=True)"
    )
    assert repr(SequenceParallel()) == "SequenceParallel(sequence_dim=1, use_local_output=False)"
    assert "desired_input_layouts=(Replicate(),)" in repr(
        PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())
    )


# --- what is refused ---


def refused(plan, error, match):
    """Applying the plan raises on all ranks, and nothing has been changed."""

    def work(mesh):
        net = transformer()
        with pytest.raises(error, match=match):
            parallelize_module(net, mesh, plan)
        assert not any(isinstance(p, DTensor) for p in net.parameters())
        assert not any(m._forward_pre_hooks for m in net.modules())

    on_mesh(2, work)


def test_a_plan_is_checked_before_it_is_applied():
    refused(
        {"head": ColwiseParallel(), "norm": RowwiseParallel()},
        UnsupportedError,
        "RowwiseParallel currently only support nn.Linear and nn.Embedding! norm is a LayerNorm",
    )
    refused(
        {"head": ColwiseParallel(), "*": ColwiseParallel()},
        UnsupportedError,
        "blocks is a ModuleList",
    )
    refused({"head": ColwiseParallel(), "hea?": RowwiseParallel()}, ArgumentError, "head .Linear. is sharded")
    refused({"head": "columns"}, TypeError, "Expect Union")
    refused("columns", TypeError, "Expect Union.* <class 'str'> found")


def test_fully_shard_comes_afterwards():
    def work(communicator):
        mesh = mesh_of(2, 2)
        model = fully_shard(nn.Sequential(nn.Linear(4, 4)), mesh=mesh["dp"])
        with pytest.raises(
            ArgumentError, match=r"'0.weight' is a DTensor on .* Call parallelize_module first"
        ):
            parallelize_module(model, mesh["tp"], {"0": ColwiseParallel()})

    run_ranks(4, work)


def test_tied_parameters_have_to_be_split_alike():
    def work(mesh):
        plan = {"embed": ColwiseParallel(), "head": ColwiseParallel()}
        parallelize_module(transformer(tied=True), mesh, plan)

    with pytest.raises(ArgumentError, match=r"'weight' of .10, 8. is shared with another module"):
        on_mesh(2, work)


def test_tied_parameters_that_two_calls_split_stay_tied():
    def work(mesh):
        model = transformer(tied=True)
        with pytest.warns(TenonWarning, match="'embed.weight' is shared with 'head.weight', which the plan"):
            parallelize_module(model, mesh, {"embed": RowwiseParallel()})
        assert model.head.weight is not model.embed.weight
        parallelize_module(model.head, mesh, ColwiseParallel())
        return model.head.weight is model.embed.weight

    assert on_mesh(1, work) == [True]  # ranks that are threads share the list of warnings


def test_paths_that_match_nothing_are_warned_of():
    def work(mesh):
        with pytest.warns(TenonWarning, match="'blocks.*.mlp' could not be resolved"):
            parallelize_module(transformer(), mesh, {"blocks.*.mlp": ColwiseParallel()})
        with pytest.warns(TenonWarning, match="No parallelize_plan is provided"):
            parallelize_module(transformer(), mesh)

    run_ranks(1, lambda communicator: work(init_device_mesh("cpu", (1,))))


def test_meshes_of_several_dimensions_are_refused():
    def work(communicator):
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        parallelize_module(nn.Linear(2, 2), mesh, ColwiseParallel())

    with pytest.raises(ArgumentError, match=r"a mesh of one dimension.* Select one by name"):
        run_ranks(1, work)


@pytest.mark.parametrize(
    "create, match",
    [
        (lambda: PrepareModuleInput(input_layouts=Shard(0)), "desired module inputs should not be None!"),
        (
            lambda: PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=(None, None)),
            "input_layouts and desired_input_layouts should have same length!",
        ),
        (
            lambda: PrepareModuleInput(
                input_kwarg_layouts={"x": Shard(0)}, desired_input_kwarg_layouts={"y": Shard(0)}
            ),
            "input_kwarg_layouts and desired_input_kwarg_layouts should have same length!",
        ),
        (
            lambda: PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=(Shard(0), None)),
            "output_layouts and desired_output_layouts should have same length!",
        ),
        (lambda: PrepareModuleOutput(output_layouts="x", desired_output_layouts="y"), "not a placement"),
    ],
)
def test_wrong_layouts(create, match):
    with pytest.raises(AssertionError, match=match):
        create()


def test_wrong_calls():
    def work(mesh):
        module = Two()
        style = PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())
        parallelize_module(module, mesh, style)
        with pytest.raises(ModuleValueError, match="Got 2 positional inputs and 1 layouts"):
            module(torch.ones(1), torch.ones(1))
        with pytest.raises(ArgumentError, match=r"expecting input 0 to be a torch.Tensor, but got a list"):
            parallelize_module(nn.Identity(), mesh, style)([1.0])
        layer = parallelize_module(nn.Linear(2, 2), mesh, ColwiseParallel())
        with pytest.raises(ModuleValueError, match="takes its input as the first positional argument"):
            layer(input=torch.ones(1, 2))
        with pytest.raises(ArgumentError, match="sharded already"):
            parallelize_module(layer, mesh, RowwiseParallel())
        with pytest.raises(ArgumentError, match="is not a placement"):
            ColwiseParallel(input_layouts=1)

    on_mesh(2, work)


# --- with fully_shard ---


def mesh_of(*sizes, names=("dp", "tp")):
    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def train_sharded(base, mesh, plan, data, **options):
    """Train a model that is tensor-parallel over "tp" and sharded over the other dimensions, each of whose
    ranks has rows of ``data``; return losses, the whole state, and the placements."""
    model = parallelize_module(copy.deepcopy(base), mesh["tp"], plan)
    data_mesh = mesh[mesh.mesh_dim_names[:-1]]
    for block in model.blocks:
        fully_shard(block, mesh=data_mesh, **options)
    fully_shard(model, mesh=data_mesh, **options)
    count, place = mesh.size() // mesh["tp"].size(), mesh.get_rank() // mesh["tp"].size()
    own = [t.chunk(count)[place] for t in data]
    return train(model, *own), whole(model), {n: p.placements for n, p in model.named_parameters()}


def check_sharded(sizes, names, plan, **options):
    base, data = transformer(), batch()
    losses, state = trained(base, *data)

    def work(communicator):
        mesh = mesh_of(*sizes, names=names)
        return train_sharded(base, mesh, plan(), data, **options)

    results = run_ranks(torch.tensor(sizes).prod().item(), work)
    for step, expected in enumerate(losses):
        means = [found[step] for found, _, _ in results]
        assert sum(means) / len(means) == pytest.approx(expected, rel=1e-5)
    for _, found, _ in results:
        assert_equal_states(found, state)
    return results[0][2]


@pytest.mark.parametrize(
    "plan", [pytest.param(tensor_plan, marks=pytest.mark.slow), sequence_plan], ids=["tensor", "sequence"]
)
def test_sharded_data_parallel_and_tensor_parallel(plan):
    placements = check_sharded((2, 2), ("dp", "tp"), plan)

    assert str(placements["head.weight"]) == "(StridedShard(dim=0), Shard(dim=0))"
    assert placements["blocks.0.ffn.down.weight"] == (Shard(0), Shard(1))
    norm = (Shard(0), Replicate()) if plan is sequence_plan else (Shard(0),)
    assert placements["norm.weight"] == norm


@pytest.mark.slow
@pytest.mark.parametrize("plan", [tensor_plan, sequence_plan], ids=["tensor", "sequence"])
@pytest.mark.parametrize(
    "sizes, names",
    [
        ((2, 2, 2), ("replicate", "shard", "tp")),
        ((4, 2), ("dp", "tp")),
        ((1, 2), ("dp", "tp")),
        ((4, 1), ("dp", "tp")),
        ((2, 1, 2), ("replicate", "shard", "tp")),
    ],
    ids=str,
)
@pytest.mark.parametrize("keeps", [True, False], ids=["ZeRO-3", "ZeRO-2"])
def test_all_kinds_of_data_parallel_and_tensor_parallel(sizes, names, plan, keeps):
    check_sharded(sizes, names, plan, reshard_after_forward=keeps)


def test_an_equal_part_of_another_mesh_belongs_to_this_one():
    def work(communicator):
        mesh_of(2, 2)["tp"]
        first = parallelize_module(nn.Linear(4, 4), mesh_of(2, 2)["tp"], ColwiseParallel())
        assert first.weight.device_mesh.ndim == 1
        mesh = mesh_of(1, 2, 2, names=("replicate", "shard", "tp"))
        layer = parallelize_module(nn.Linear(4, 4), mesh["tp"], ColwiseParallel())
        fully_shard(layer, mesh=mesh["replicate", "shard"])
        return layer.weight.device_mesh.shape

    assert run_ranks(4, work)[0] == (1, 2, 2)


def test_replicated_data_parallel_and_tensor_parallel():
    base, (x, y) = transformer(), batch()
    plain = copy.deepcopy(base)
    functional.cross_entropy(plain(x).flatten(0, 1), y.flatten()).backward()

    def work(communicator):
        mesh = mesh_of(2, 2)
        model = parallelize_module(copy.deepcopy(base), mesh["tp"], tensor_plan())
        replicated = nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group("dp"))
        own = [t.chunk(2)[mesh.get_local_rank("dp")] for t in (x, y)]
        with loss_parallel():
            functional.cross_entropy(replicated(own[0]).flatten(0, 1), own[1].flatten()).backward()
        gradients = {name: p.grad for name, p in model.named_parameters()}
        return {n: g.full_tensor() if isinstance(g, DTensor) else g for n, g in gradients.items()}

    for gradients in run_ranks(4, work):
        for name, parameter in plain.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_meshes_that_do_not_belong_together_are_refused():
    def work(communicator):
        mesh = mesh_of(2, 2)
        model = parallelize_module(nn.Sequential(nn.Linear(4, 4)), mesh["tp"], {"0": ColwiseParallel()})
        for other in (mesh["tp"], init_device_mesh("cpu", (4,)), mesh_of(2, 2, names=("a", "b"))["a"]):
            with pytest.raises(
                ArgumentError, match=r"'0.weight' is a DTensor already.*named dimensions of one"
            ):
                fully_shard(model, mesh=other)
        part = DTensor.from_local(torch.ones(2), mesh["tp"], [Partial()])
        model[0].bias = nn.Parameter(part)
        with pytest.raises(ArgumentError, match="partial results cannot be trained"):
            fully_shard(model[0], mesh=mesh["dp"])

    run_ranks(4, work)


def test_paths_of_pytorch_name_the_same_modules():
    from tenon.distributed import _tensor, tensor
    from tenon.distributed._tensor.placement_types import Shard as ShardOfOldPath
    from tenon.distributed.tensor.parallel import style

    assert _tensor is tensor and ShardOfOldPath is Shard
    assert (style.ColwiseParallel, style.ParallelStyle) == (ColwiseParallel, ParallelStyle)
    assert style.PrepareModuleInputOutput is PrepareModuleInputOutput
