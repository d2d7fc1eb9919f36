"""PyTorch's Modules note, cell by cell, with ``import tenon as torch``.

The cells are typed as the note has them; around them stand the sentences that they illustrate. Printed
values are compared where the note (or an executed copy of it) fixes a seed. Its sections on
quantization, pruning, parametrizations and graph transforms have tests of their own.
"""

import re

import pytest

import tenon as torch
import tenon.nn.functional as F
from tenon import nn


class MyLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, input):
        return (input @ self.weight) + self.bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l0 = MyLinear(4, 3)
        self.l1 = MyLinear(3, 1)

    def forward(self, x):
        x = self.l0(x)
        x = F.relu(x)
        x = self.l1(x)
        return x


class BigNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = MyLinear(5, 4)
        self.net = Net()

    def forward(self, x):
        return self.net(self.l1(x))


class DynamicNet(nn.Module):
    def __init__(self, num_layers):
        super().__init__()
        self.linears = nn.ModuleList([MyLinear(4, 4) for _ in range(num_layers)])
        self.activations = nn.ModuleDict({"relu": nn.ReLU(), "lrelu": nn.LeakyReLU()})
        self.final = MyLinear(4, 1)

    def forward(self, x, act):
        for linear in self.linears:
            x = linear(x)
            x = self.activations[act](x)
        x = self.final(x)
        return x


class RunningMean(nn.Module):
    def __init__(self, num_features, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(num_features))

    def forward(self, x):
        self.mean = self.momentum * self.mean + (1.0 - self.momentum) * x
        return self.mean


class StatefulModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.param1 = nn.Parameter(torch.randn(2))
        self.register_parameter("param2", nn.Parameter(torch.randn(3)))
        self.register_parameter("param3", None)
        self.param_list = nn.ParameterList([nn.Parameter(torch.randn(2)) for i in range(3)])
        self.param_dict = nn.ParameterDict(
            {"foo": nn.Parameter(torch.randn(3)), "bar": nn.Parameter(torch.randn(4))}
        )
        self.register_buffer("buffer1", torch.randn(4), persistent=True)
        self.register_buffer("buffer2", torch.randn(5), persistent=False)
        self.register_buffer("buffer3", None)
        self.linear = nn.Linear(2, 3)


# A Simple Custom Module.


def test_calling_a_module_invokes_its_forward():
    m = MyLinear(4, 3)
    sample_input = torch.randn(4)

    out = m(sample_input)

    assert out.shape == (3,)
    assert torch.all(out == m.forward(sample_input))
    assert re.fullmatch(r"tensor\(\[.*, .*, .*\], grad_fn=<AddBackward0>\)", repr(out))


def test_parameters_are_registered_and_printed_with_their_names():
    m = MyLinear(4, 3)

    printed = [repr(parameter) for parameter in m.named_parameters()]

    assert printed[0].startswith("('weight', Parameter containing:\ntensor([[")
    assert printed[1].startswith("('bias', Parameter containing:\ntensor([")
    assert all(text.endswith("requires_grad=True))") for text in printed)
    assert [p.shape for p in m.parameters()] == [(4, 3), (3,)]


def test_modules_may_have_no_state():
    assert list(nn.ReLU().parameters()) == []


# Modules as Building Blocks.


def test_sequential_feeds_each_output_into_the_next_module():
    net = nn.Sequential(MyLinear(4, 3), nn.ReLU(), MyLinear(3, 1))
    sample_input = torch.randn(4)

    out = net(sample_input)

    assert out.shape == (1,)
    assert torch.all(out == net[2](F.relu(net[0](sample_input))))
    assert "grad_fn=<AddBackward0>" in repr(out)


def test_children_are_the_immediate_submodules():
    net = Net()

    assert [repr(child) for child in net.named_children()] == ["('l0', MyLinear())", "('l1', MyLinear())"]
    assert list(net.children()) == [net.l0, net.l1]


def test_modules_are_walked_recursively_and_print_nested():
    big_net = BigNet()

    assert [repr(module) for module in big_net.named_modules()] == [
        "('', BigNet(\n"
        "  (l1): MyLinear()\n"
        "  (net): Net(\n"
        "    (l0): MyLinear()\n"
        "    (l1): MyLinear()\n"
        "  )\n"
        "))",
        "('l1', MyLinear())",
        "('net', Net(\n  (l0): MyLinear()\n  (l1): MyLinear()\n))",
        "('net.l0', MyLinear())",
        "('net.l1', MyLinear())",
    ]
    assert big_net(torch.randn(5)).shape == (1,)


def test_module_list_and_dict_register_submodules():
    dynamic_net = DynamicNet(3)
    sample_input = torch.randn(4)

    output = dynamic_net(sample_input, "relu")

    assert output.shape == (1,)
    assert torch.all(dynamic_net(sample_input, act="relu") == output)
    assert dynamic_net(sample_input, "lrelu").shape == (1,)
    assert repr(dynamic_net) == (
        "DynamicNet(\n"
        "  (linears): ModuleList(\n"
        "    (0-2): 3 x MyLinear()\n"
        "  )\n"
        "  (activations): ModuleDict(\n"
        "    (relu): ReLU()\n"
        "    (lrelu): LeakyReLU(negative_slope=0.01)\n"
        "  )\n"
        "  (final): MyLinear()\n"
        ")"
    )


def test_parameters_of_submodules_are_included():
    dynamic_net = DynamicNet(3)

    named = dict(dynamic_net.named_parameters())

    assert list(named) == [
        *(f"linears.{i}.{name}" for i in range(3) for name in ("weight", "bias")),
        "final.weight",
        "final.bias",
    ]
    assert named["linears.1.weight"] is dynamic_net.linears[1].weight


def test_precision_of_all_parameters_can_be_changed():
    dynamic_net = DynamicNet(2)

    assert dynamic_net.to(dtype=torch.float64) is dynamic_net

    out = dynamic_net(torch.randn(4, dtype=torch.float64), "relu")
    assert re.fullmatch(r"tensor\(\[.*\], dtype=torch.float64, grad_fn=<AddBackward0>\)", repr(out))
    assert all(p.dtype is torch.float64 for p in dynamic_net.parameters())


def cuda_reason():
    """Why no CUDA device can be used here; None if one can."""
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as error:
        return str(error)
    return None


@pytest.mark.cuda
@pytest.mark.skipif(cuda_reason() is not None, reason="needs an NVIDIA GPU and CuPy")
def test_modules_move_to_cuda():
    dynamic_net = DynamicNet(2)
    dynamic_net.to(device="cuda")
    dynamic_net.to(dtype=torch.float64)

    out = dynamic_net(torch.randn(4, device="cuda", dtype=torch.float64), "relu")

    assert re.fullmatch(
        r"tensor\(\[.*\], device='cuda:0', dtype=torch.float64, grad_fn=<AddBackward0>\)", repr(out)
    )
    m = RunningMean(4)
    m.to(device="cuda", dtype=torch.float64)
    assert m.mean.device.type == "cuda" and m.mean.dtype is torch.float64
    assert nn.Linear(5, 3, device="cuda").weight.device.type == "cuda"


@pytest.mark.skipif(cuda_reason() is None, reason="this machine has a CUDA device")
def test_without_cuda_the_error_says_why_and_nothing_moves():
    dynamic_net = DynamicNet(2)

    for attempt in (
        lambda: dynamic_net.to(device="cuda"),
        lambda: dynamic_net.cuda(),
        lambda: nn.Linear(5, 3, device="cuda"),
        lambda: torch.randn(5, device="cuda", dtype=torch.float64),
    ):
        with pytest.raises(RuntimeError, match=r"(?i)cuda"):
            attempt()
    assert all(p.device.type == "cpu" for p in dynamic_net.parameters())


def test_apply_reaches_every_module_below():
    dynamic_net = DynamicNet(2)
    dynamic_net.extra = nn.Linear(3, 2)
    seen = []

    @torch.no_grad()
    def init_weights(m):
        seen.append(type(m).__name__)
        if isinstance(m, nn.Linear):
            nn.init.xavier_normal_(m.weight)
            m.bias.fill_(0.0)

    assert dynamic_net.apply(init_weights) is dynamic_net
    assert seen == [
        "MyLinear",
        "MyLinear",
        "ModuleList",
        "ReLU",
        "LeakyReLU",
        "ModuleDict",
        "MyLinear",
        "Linear",
        "DynamicNet",
    ]
    assert dynamic_net.extra.bias.tolist() == [0.0, 0.0]
    assert dynamic_net.extra.weight.requires_grad and dynamic_net.extra.weight.grad_fn is None


# Neural Network Training with Modules.


@pytest.mark.slow
def test_training_teaches_the_network_to_output_zero():
    torch.manual_seed(0)
    net = Net()
    before = float(net.l1.weight.detach().abs().sum())
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)

    for _ in range(10000):
        input = torch.randn(4)
        output = net(input)
        loss = torch.abs(output)
        net.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()

    assert all(abs(value) < 0.2 for row in net.l1.weight.tolist() for value in row)
    assert float(net.l1.weight.detach().abs().sum()) < 0.2 * before
    assert re.fullmatch(
        r"Parameter containing:\ntensor\(\[\[.*\],\n        \[.*\],\n        \[.*\]\], requires_grad=True\)",
        repr(net.l1.weight),
    )


def test_modules_default_to_training_mode():
    net = BigNet()
    assert all(module.training for module in net.modules())

    net.eval()
    assert not any(module.training for module in net.modules())
    net.train()
    assert all(module.training for module in net.modules())


def test_modal_module_behaves_differently_in_evaluation_mode():
    class ModalModule(nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x):
            if self.training:
                # Add a constant only in training mode.
                return x + 1.0
            else:
                return x

    m = ModalModule()
    x = torch.randn(4)

    training = m(x)
    m.eval()
    evaluation = m(x)

    assert torch.all(training == x + 1.0)
    assert torch.all(evaluation == x)


def test_batch_norm_updates_its_statistics_in_training_mode_only():
    m = nn.BatchNorm2d(2)
    x = torch.ones(3, 2, 4, 4) * 5

    m(x)
    after_training = m.running_mean.tolist()
    m.eval()
    m(x * 7)

    assert after_training == pytest.approx([0.5, 0.5])
    assert m.running_mean.tolist() == after_training


# Module State.


def test_a_saved_module_is_loaded_into_a_new_one(tmp_path):
    net = Net()

    torch.save(net.state_dict(), tmp_path / "net.pt")
    new_net = Net()
    result = new_net.load_state_dict(torch.load(tmp_path / "net.pt"))

    assert repr(result) == "<All keys matched successfully>"
    x = torch.randn(4)
    assert torch.all(net(x) == new_net(x))


def test_running_mean_is_saved_restored_and_stays_a_buffer(tmp_path):
    m = RunningMean(4)
    for _ in range(10):
        input = torch.randn(4)
        m(input)

    assert [name for name, _ in m.named_buffers()] == ["mean"]
    assert re.fullmatch(
        r"OrderedDict\(\[\('mean', tensor\(\[.*\]\)\)\]\)", repr(m.state_dict())
    ) or re.fullmatch(r"OrderedDict\(\{'mean': tensor\(\[.*\]\)\}\)", repr(m.state_dict()))
    torch.save(m.state_dict(), tmp_path / "mean.pt")
    m_loaded = RunningMean(4)
    m_loaded.load_state_dict(torch.load(tmp_path / "mean.pt"))
    assert torch.all(m.mean == m_loaded.mean)
    with pytest.raises(AssertionError):
        assert torch.all(m.mean != m_loaded.mean)


def test_non_persistent_buffers_are_left_out_of_the_state():
    m = RunningMean(4)
    m.register_buffer("unserialized_thing", torch.randn(5), persistent=False)

    assert list(m.state_dict()) == ["mean"]
    assert [name for name, _ in m.named_buffers()] == ["mean", "unserialized_thing"]


def test_to_moves_persistent_and_non_persistent_buffers():
    m = RunningMean(4)
    m.register_buffer("unserialized_thing", torch.randn(5), persistent=False)

    m.to(device="cpu", dtype=torch.float64)

    assert all(buffer.dtype is torch.float64 for buffer in m.buffers())


def test_every_way_of_registering_state(tmp_path):
    m = StatefulModule()

    torch.save(m.state_dict(), tmp_path / "state.pt")
    m_loaded = StatefulModule()
    m_loaded.load_state_dict(torch.load(tmp_path / "state.pt"))

    state = m_loaded.state_dict()
    assert list(state) == [
        "param1",
        "param2",
        "buffer1",
        "param_list.0",
        "param_list.1",
        "param_list.2",
        "param_dict.bar",
        "param_dict.foo",
        "linear.weight",
        "linear.bias",
    ]
    assert all(torch.all(state[name] == value) for name, value in m.state_dict().items())
    assert m.param3 is None and m.buffer3 is None
    for reserved in ("param3", "buffer3"):
        with pytest.raises(TypeError, match=rf"cannot assign .* '{reserved}'"):
            setattr(m, reserved, "anything")
