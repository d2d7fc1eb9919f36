"""Modules saved as a whole: layers of ``tenon.nn`` by name and attributes, read without executing code."""

import copy
import io
import pickle
import zipfile
from collections import OrderedDict

import pytest

import tenon
from tenon import nn, serialization
from tenon.errors import CheckpointError, UnsafeCheckpointError, UnsavableError
from tenon.nn import functional as F


def written(obj):
    file = io.BytesIO()
    tenon.save(obj, file)
    file.seek(0)
    return file


def copied(obj):
    return tenon.load(written(obj), weights_only=False)


def test_a_network_of_layers_comes_back_whole():
    tenon.manual_seed(0)
    blocks = nn.ModuleDict({"a": nn.TransformerEncoderLayer(4, 2, 8, activation=F.gelu, batch_first=True)})
    net = nn.ModuleList([nn.LSTM(3, 4, 2, batch_first=True), blocks, nn.BatchNorm1d(4)]).eval()
    net[2].running_mean.fill_(0.5)
    net[2].weight.requires_grad_(False)
    x = tenon.randn(2, 5, 3)

    read = copied({"net": net, "epoch": 3})["net"]

    assert repr(read) == repr(net)
    assert not read.training
    assert not read[2].weight.requires_grad
    for ours, theirs in zip(read.state_dict().items(), net.state_dict().items(), strict=True):
        assert ours[0] == theirs[0]
        assert tenon.equal(ours[1], theirs[1])
    run = lambda n: n[1]["a"](n[0](x)[0])  # noqa: E731
    assert tenon.equal(run(read), run(net))
    read.train().register_forward_hook(lambda *given: None)
    run(read).sum().backward()
    assert read[0].weight_ih_l0.grad is not None


def test_what_a_module_holds_twice_it_holds_twice_again():
    tied, same = nn.Linear(3, 3), nn.ReLU()
    net = nn.Sequential(tied, same, nn.Linear(3, 3), same)
    net[2].weight = tied.weight

    read = copied(net)

    assert read[2].weight is read[0].weight
    assert read[1] is read[3]
    assert len(list(read.parameters())) == 3


def test_a_module_is_data_only_when_it_is_asked_for():
    file = written(nn.Linear(2, 3))
    for asked in (True, None):
        file.seek(0)
        with pytest.raises(UnsafeCheckpointError, match=r"torch\.nn\.Linear.*weights_only=False"):
            tenon.load(file, weights_only=asked)


def archive(tree):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        target.writestr("archive/data.pkl", tree)
    file.seek(0)
    return file


class Own(nn.Linear):
    """A user-defined class."""


def hooked():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *given: None)
    return layer


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Sequential(nn.ReLU(), Own(2, 2)), r"obj\._modules\['1'\]: .*Own.*state_dict"),
        (lambda: nn.Sequential(hooked()), r"obj\._modules\['0'\]: it has hooks \(_forward_hooks\)"),
        (
            lambda: nn.TransformerEncoderLayer(4, 2, activation=lambda x: x),
            "'activation' is the function .*lambda",
        ),
        (lambda: nn.LazyLinear(3), "uninitialised"),
    ],
)
def test_what_only_code_can_rebuild_is_not_saved(make, said, tmp_path):
    with pytest.raises(UnsavableError, match=said):
        tenon.save(make(), tmp_path / "net.pt")
    assert not list(tmp_path.iterdir())


def test_safetensors_hold_no_modules(tmp_path):
    with pytest.raises(UnsavableError, match=r"obj\['net'\]"):
        tenon.save({"net": nn.Linear(2, 2)}, tmp_path / "net.safetensors")


class Named:
    """Pickles as a global of any given name."""

    def __init__(self, name):
        self.name = name


class _Writer(pickle._Pickler):
    """Pickles ``Layer`` and ``Named`` under names that an untrusted file could contain."""

    def save(self, obj, *rest):
        if isinstance(obj, Named):
            place, _, name = obj.name.rpartition(".")
            self.write(pickle.GLOBAL + f"{place}\n{name}\n".encode())
        elif isinstance(obj, Layer):
            self.save(Named(obj.name))
            self.save(obj.args)
            self.write(pickle.NEWOBJ)
            self.save(obj.state)
            self.write(pickle.BUILD)
        else:
            super().save(obj, *rest)


class Layer:
    def __init__(self, name="torch.nn.Linear", args=(), **state):
        self.name, self.args = name, args
        whole = {"training": True, "_parameters": {}, "_buffers": {}, "_modules": {}}
        self.state = whole | {"_non_persistent_buffers_set": set()} | state


HOSTILE = {
    "another class": (Layer("torch.nn.modules.module.Evil"), "Evil"),
    "what is not a layer": (Layer("torch.nn.functional.relu"), "function"),
    "a constructor's arguments": (Layer(args=(1 << 40, 1 << 40)), "type"),
    "a method": (Layer(forward=Named("torch.nn.functional.relu")), "'forward'.*replace a method"),
    "a special name": (Layer(__class__=3), "'__class__'"),
    "a hook": (Layer(_forward_hooks=OrderedDict({0: Named("torch.nn.functional.relu")})), "hooks"),
    "a private function": (Layer(activation=Named("torch.nn.functional._verify_spatial_size")), "_verify"),
    "another function": (Layer(activation=Named("os.system")), "system"),
    "a list of parameters": (Layer(_parameters=[1]), "_parameters of a Linear"),
    "a number as a parameter": (Layer(_parameters={"weight": 1}), "_parameters of a Linear"),
    "a number as a module": (Layer(_modules={"0": 1}), "_modules of a Linear"),
    "no training flag": (Layer(training=3), "training"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_strangers_module_is_refused(case):
    layer, said = HOSTILE[case]
    tree = io.BytesIO()
    _Writer(tree, 2).dump(layer)
    with pytest.raises(CheckpointError, match=said):
        tenon.load(archive(tree.getvalue()), weights_only=False)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.nn.Sequential(t.nn.Conv1d(3, 4, 1), t.nn.BatchNorm1d(4), t.nn.GELU(), t.nn.Flatten(0, 1)),
        lambda t: t.nn.TransformerEncoderLayer(3, 1, 4, activation="gelu", batch_first=True),
        lambda t: t.nn.GRU(3, 4, 2, bidirectional=True),
    ],
)
def test_whole_modules_travel_both_ways(make):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = make(torch).eval()
    x = torch.randn(2, 3, 3)
    file = io.BytesIO()
    torch.save(theirs, file)
    file.seek(0)

    ours = tenon.load(file, weights_only=False)
    back = torch.load(written(ours), weights_only=False)
    own = torch.load(written(make(tenon)), weights_only=False)

    first = lambda found: found[0] if isinstance(found, tuple) else found  # noqa: E731
    expected = first(theirs(x)).detach()
    torch.testing.assert_close(first(back(x)).detach(), expected)
    assert type(own) is type(theirs)
    torch.testing.assert_close(torch.tensor(first(ours(tenon.tensor(x.numpy()))).detach().numpy()), expected)


def test_layers_that_the_caller_marks_are_read_with_weights_only():
    file = written(nn.Sequential(nn.Linear(2, 3), nn.GELU()))
    named = ["torch.nn.Sequential", "torch.nn.Linear", "torch.nn.GELU"]

    assert serialization.get_unsafe_globals_in_checkpoint(file) == named
    with serialization.safe_globals([nn.Linear]):
        assert serialization.get_unsafe_globals_in_checkpoint(file) == [named[0], named[2]]
        with pytest.raises(UnsafeCheckpointError, match=named[0]):
            tenon.load(file)
    serialization.add_safe_globals([nn.Sequential, nn.Linear, (nn.GELU, "torch.nn.GELU")])
    try:
        assert isinstance(tenon.load(written(nn.Sequential(nn.Linear(2, 3), nn.GELU()))), nn.Sequential)
    finally:
        serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []


def test_marking_a_class_of_ones_own_does_not_let_a_file_run_it():
    class Own:
        pass

    own = zipfile.ZipFile(file := io.BytesIO(), "w")
    own.writestr("archive/data.pkl", b"\x80\x02c__main__\nOwn\n)\x81.")
    own.close()

    with serialization.safe_globals([(Own, "__main__.Own")]):
        assert serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(file.getvalue())) == ["__main__.Own"]
        with pytest.raises(UnsafeCheckpointError, match=r"__main__\.Own"):
            tenon.load(io.BytesIO(file.getvalue()))
    with pytest.raises(UnsafeCheckpointError, match="bare pickle"):
        serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(b"\x80\x02." * 9))


def test_a_file_without_a_byte_order_is_taken_for_what_the_caller_says():
    file = written(tenon.tensor([1, 256]))
    plain = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(plain, "w") as new:
        for record in old.namelist():
            if not record.endswith("byteorder"):
                new.writestr(record, old.read(record))
    read = lambda: tenon.load(io.BytesIO(plain.getvalue())).tolist()  # noqa: E731

    serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
    try:
        swapped = read()
    finally:
        serialization.set_default_load_endianness(None)

    assert (read(), swapped) == ([1, 256], [1 << 56, 1 << 48])
    with pytest.raises(TypeError, match="Invalid argument type"):
        serialization.set_default_load_endianness("big")


def test_options_of_a_layer_are_saved_as_pytorch_saves_them():
    torch = pytest.importorskip("torch")
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2, acc_dtype=tenon.float64)
    loss = nn.LinearCrossEntropyLoss(4, 8, options=options)

    assert copied([loss, options])[0].options == options
    theirs = torch.load(written(loss), weights_only=False)
    assert theirs.options == torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2, acc_dtype=torch.float64)
    torch.save(theirs, file := io.BytesIO())
    file.seek(0)
    assert tenon.load(file, weights_only=False).options == options
    wrong = written(loss).getvalue().replace(b"auto", b"ruin")
    with pytest.raises(CheckpointError):
        tenon.load(io.BytesIO(wrong), weights_only=False)


def test_what_users_put_on_tensors_is_saved_with_them(tmp_path):
    torch = pytest.importorskip("torch")
    plain, weight = tenon.ones(2), nn.Parameter(tenon.ones(2))
    kept = nn.Buffer(tenon.zeros(1), persistent=False)
    plain.note, plain.other, weight.near = "mine", tenon.zeros(1), [plain, 3]

    for read in (tenon.load(written([plain, weight, kept])), torch.load(written([plain, weight, kept]))):
        assert read[0].note == "mine"
        assert read[1].near[0] is read[0] and read[1].near[1] == 3
        assert type(read[1]).__name__ == "Parameter" and not read[2].persistent
    assert isinstance(tenon.load(written(kept)), nn.Buffer)
    assert copy.copy(weight).near[1] == pickle.loads(pickle.dumps(weight)).near[1] == 3
    tenon.save({"x": plain}, tmp_path / "plain.safetensors")  # a format that has no place for them
    assert vars(tenon.load(tmp_path / "plain.safetensors")["x"]) == {}
    weight.near = lambda: 1
    with pytest.raises(UnsavableError, match=r"obj\[1\]\.near: a checkpoint cannot hold a function"):
        written([plain, weight])
    weight.near = weight
    with pytest.raises(UnsavableError, match="contain themselves"):
        written(weight)
