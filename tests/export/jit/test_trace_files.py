"""Files of ``tenon.jit.save``: no pickle, no class of the model, atomic, and damaged or foreign ones refused."""

import collections
import io
import json
import struct
import subprocess
import sys
import zipfile

import pytest

import tenon
from tenon import jit, nn
from tenon.errors import BundleError, LoweringError, UnsupportedError
from tenon.export import schema


@pytest.fixture(autouse=True)
def _seed():
    tenon.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("offset", tenon.ones(4), persistent=False)
        self.plain = tenon.full((4,), 2.0)
        self.register_parameter("absent", None)
        self.frozen = nn.Parameter(tenon.ones(4), requires_grad=False)

    def forward(self, x):
        return (self.norm(self.first(x)).relu() * self.plain + self.offset * self.frozen, x.sum(1))

    def scaled(self, x, factor):
        return self.first(x) * factor


def traced_net():
    return jit.trace_module(
        Net().eval(), {"forward": tenon.randn(2, 3), "scaled": (tenon.randn(2, 3), tenon.ones(4))}
    )


def reread(data):
    return jit.load(io.BytesIO(data))


def test_a_file_gives_the_module_back(tmp_path):
    traced, x = traced_net(), tenon.randn(5, 3)
    jit.save(traced, tmp_path / "net.pt")
    again = jit.load(tmp_path / "net.pt")

    assert isinstance(again, jit.RecursiveScriptModule) and not isinstance(again, Net)
    assert str(again).startswith(
        "RecursiveScriptModule(\n  original_name=Net\n  (first): RecursiveScriptModule("
    )
    assert all(tenon.equal(a, b) for a, b in zip(again(x), traced(x), strict=True))
    assert tenon.equal(again.scaled(x, tenon.zeros(4)), tenon.zeros(5, 4))
    assert again.code == traced.code and str(again.graph).count("\n") == str(traced.graph).count("\n")
    assert list(again.state_dict()) == list(traced.state_dict())
    assert {n: p.requires_grad for n, p in again.named_parameters()} == {
        n: p.requires_grad for n, p in traced.named_parameters()
    }
    assert [n for n, _ in again.named_buffers()] == [n for n, _ in traced.named_buffers()]
    assert not again.training and again.train().training
    again(x)[0].sum().backward()
    assert again.first.weight.grad is not None


def test_present_weights_are_saved():
    traced = traced_net()
    with tenon.no_grad():
        traced.first.weight.zero_()
    again = reread(traced.save_to_buffer())
    assert not again.first.weight.any()
    assert tenon.equal(
        reread(again.save_to_buffer()).scaled(tenon.ones(1, 3), tenon.ones(4)), again.first.bias[None]
    )


@pytest.mark.slow
def test_the_class_of_the_model_need_not_be_importable(tmp_path):
    traced, x = traced_net(), tenon.ones(2, 3)
    traced.save(str(tmp_path / "net.pt"))
    code = (
        "import sys, tenon as torch\n"
        f"net = torch.jit.load({str(tmp_path / 'net.pt')!r}, map_location='cpu')\n"
        "print(net(torch.ones(2, 3))[0].tolist())\n"
        "assert not any('test_trace_files' in name for name in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == traced(x)[0].tolist()


def test_extra_files_go_along(tmp_path):
    traced = jit.trace(lambda x: x * 2, tenon.ones(2))
    jit.save(traced, tmp_path / "f.pt", _extra_files={"a.txt": "text", "b": b"\x00\xff"})
    extra = {"a.txt": "", "b": "", "c": "unset"}
    function = jit.load(tmp_path / "f.pt", _extra_files=extra)
    assert extra == {"a.txt": b"text", "b": b"\x00\xff", "c": b""}
    assert function(tenon.ones(3, 2)).tolist() == [[2, 2]] * 3
    assert isinstance(function, jit.ScriptModule) and function.original_name == "_lambda"


def test_sizes_arguments_and_refusals_come_back():
    traced = jit.trace(nn.Linear(3, 2), tenon.ones(1, 3))
    again = reread(traced.save_to_buffer())
    assert again(input=tenon.ones(4, 3)).shape == (4, 2)
    with pytest.raises(RuntimeError, match=r"dimension 1 is fixed \(ShapeError"):
        again(tenon.ones(4, 2))
    with pytest.raises(RuntimeError, match=r"dimension 1 is fixed \(ShapeError"):
        traced(tenon.ones(4, 2))
    pair = reread(
        jit.trace(lambda d: d["a"] - d["b"], ({"a": tenon.ones(2), "b": tenon.ones(2)},)).save_to_buffer()
    )
    assert pair({"a": tenon.ones(5), "b": tenon.zeros(5)}).tolist() == [1] * 5


def test_equal_modules_give_equal_files_without_pickle():
    data = traced_net().save_to_buffer()
    tenon.manual_seed(0)
    assert traced_net().save_to_buffer() == data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert sorted(archive.namelist()) == [
            "methods/forward.json", "methods/scaled.json", "module.json", "parts/1/forward.json",
            "parts/2/forward.json", "weights.safetensors",
        ]  # fmt: skip


RANDOM = {
    "rand": lambda x: x + tenon.rand(3),
    "rand_like, other order": lambda x: x.T + tenon.rand_like(x.T),
    "randn": lambda x: x + tenon.randn(x.shape),
    "randint": lambda x: x + tenon.randint(-2, 5, (3,)),
    "randperm": lambda x: x[:, tenon.randperm(3)],
    "bernoulli": lambda x: tenon.bernoulli(x.sigmoid()),
    "normal": lambda x: x + tenon.normal(2.0, 3.0, (3,)),
    "exponential": lambda x: x.clone().exponential_(2.0),
    "dropout": lambda x: nn.functional.dropout(x, 0.5, True),
    "random_": lambda x: x.clone().random_() + x.clone().random_(2, 9),
    "multinomial": lambda x: tenon.multinomial(x.softmax(-1), 2) + x.exp().multinomial(2, replacement=True),
    "gamma": lambda x: (
        tenon._standard_gamma(x.detach() + 0.5) + tenon.poisson(x + 1) + tenon.binomial(x, x / 6)
    ),
    "dirichlet": lambda x: tenon.distributions.Dirichlet(x.exp()).sample(),
    "distribution": lambda x: tenon.distributions.Beta(x.exp(), x + 1).sample().log(),
    "categorical": lambda x: tenon.distributions.Categorical(x.exp()).sample((20,)),
    "normal, tensors": lambda x: tenon.normal(x, x.exp()) + tenon.normal(x, 2.0) + tenon.normal(0.5, x.exp()),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("gamma", "normal, tensors", "distribution") else n
        for n in RANDOM
    ],
)
@pytest.mark.filterwarnings("ignore:Trace had nondeterministic nodes")
def test_loaded_traces_draw_the_random_numbers_of_the_function(name):
    x = tenon.arange(6.0).reshape(2, 3)

    traced = jit.trace(RANDOM[name], x, check_trace=False)

    loaded = jit.load(io.BytesIO(traced.save_to_buffer()))
    for seed in (0, 1):
        results = []
        for function in (RANDOM[name], traced, loaded):
            tenon.manual_seed(seed)
            results.append(function(x))
        assert all(tenon.equal(result, results[0]) for result in results)
    assert not tenon.equal(loaded(x), loaded(x))


@pytest.mark.filterwarnings("ignore:Trace had nondeterministic nodes")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + tenon.randn(3, dtype=tenon.float32).to(x.dtype),
        lambda x: x * nn.functional.alpha_dropout(x, 0.5, True),
        lambda x: tenon.distributions.OneHotCategorical(x).sample(),
        lambda x: x * tenon.tensor([1.0, 2.0, 3.0]),
    ],
)
def test_traces_with_dtypes_are_saved_after_a_conversion(function):
    class Drawn(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(tenon.ones(3))

        def forward(self, x):
            return function(x * self.weight), function(x)

    class Plain(Drawn):
        def forward(self, x):
            return function(x), x

    x = tenon.rand(2, 3) + 0.1
    for kind in (Drawn, Plain):
        traced = jit.trace(kind(), x, check_trace=False).double()

        again = reread(reread(traced.save_to_buffer()).save_to_buffer())
        results = []
        for module in (traced, again):
            tenon.manual_seed(1)
            results += module(x.double())
        assert tenon.equal(results[0], results[2]) and tenon.equal(results[1], results[3])


@pytest.mark.filterwarnings("ignore:Trace had nondeterministic nodes")
def test_generators_are_left_as_they_were_and_travel_with_their_state():
    one, other = tenon.Generator().manual_seed(3), tenon.Generator().manual_seed(3)

    def function(x):
        return x + tenon.rand(3, generator=one), tenon.rand(3, generator=other), tenon.rand(3, generator=one)

    traced = jit.trace(function, tenon.ones(3))
    assert tenon.equal(one.get_state(), tenon.Generator().manual_seed(3).get_state())
    data = traced.save_to_buffer()
    expected = function(tenon.ones(3))

    for function in (reread(data), reread(data)):
        for result, own in zip(function(tenon.ones(3)), expected, strict=True):
            assert tenon.equal(result, own)


@pytest.mark.parametrize(
    "draw",
    [
        ["system", [3], "float32", [], [], None],
        ["uniform", [3], "float32", [], [], None, [0, "AAAA"]],
        ["uniform", [3], "float32", [], [], None, [0, 3]],
        ["uniform", [3], "float32", [], [], None, 3],
        ["uniform", [3], "float32", [["low", None]], [], None],
        ["multinomial", [3], "int64", [["num_samples", 3]], [], None],
        ["poisson", [3], "float32", [], ["count"], None],
        ["poisson", [3], "float32", [], ["rate"], None],
        ["binomial", [3], "float32", [["count", 2]], [], None],
        ["uniform", [4], "float32", [], [], None],
        ["uniform", [3], "float32", [["out", 1]], [], None],
        ["uniform", [3], "float32", [["low", "x"]], [], None],
        ["uniform", [3], "float32", [], ["low"], None],
        ["uniform", [3], "float32", [], [], [1]],
        ["uniform", [3], "float32"],
    ],
)
def test_a_draw_that_no_function_makes_is_refused(draw):
    traced = jit.trace(lambda x: x + tenon.rand(3), tenon.ones(3), check_trace=False)
    document, arrays = schema.to_document(traced.graph)
    entry = next(each for each in document["nodes"] if each.get("op") == "host_draw")
    assert entry["attrs"]["make"]["draw"][:3] == ["uniform", [3], "float32"]
    entry["attrs"]["make"]["draw"] = draw

    with pytest.raises(BundleError):
        schema.from_document(document, {k: tenon.from_numpy(v) for k, v in arrays.items()}, "graph.json")


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "net.pt"
    path.write_bytes(b"before")

    def seeding(x):
        tenon.manual_seed(0)
        return x + tenon.rand(2)

    noisy = jit.trace(seeding, tenon.ones(2), check_trace=False)
    with pytest.raises(LoweringError, match="cannot be written"):
        noisy.save(path)
    assert path.read_bytes() == b"before" and [p.name for p in tmp_path.iterdir()] == ["net.pt"]


def test_what_is_not_a_trace_is_not_saved(tmp_path):
    with pytest.raises(UnsupportedError, match=r"not a Linear.*tenon\.jit\.trace\(model, example_inputs\)"):
        jit.save(nn.Linear(1, 1), tmp_path / "x.pt")

    class Scripted(jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        @jit.script_method
        def forward(self, x):
            return self.linear(x)

    scripted = Scripted()
    assert scripted(tenon.ones(1, 2)).shape == (1, 2)
    for ask in (lambda: scripted.save("x"), lambda: scripted.code, lambda: scripted.graph):
        with pytest.raises(UnsupportedError, match=r"was not traced. tenon\.jit\.trace"):
            ask()
    assert jit.script(scripted) is scripted
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [0, 10, 200, 0.5, -1])
def test_a_truncated_file_is_refused(tmp_path, keep):
    data = traced_net().save_to_buffer()
    end = int(len(data) * keep) if isinstance(keep, float) else keep
    (tmp_path / "net.pt").write_bytes(data[:end])
    with pytest.raises(BundleError, match=r"net\.pt is not a file of tenon\.jit\.save, or is damaged"):
        jit.load(tmp_path / "net.pt")


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.pt does not exist"):
        jit.load(tmp_path / "nothing.pt")
    with pytest.raises(ValueError, match="is a directory"):
        jit.load(tmp_path)


def archive_of(**entries):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["net/code/__torch__.py", "net/data.pkl", "net/constants.pkl"],
            "TorchScript archive.*load_state_dict",
        ),
        (["net/data.pkl", "net/data/0"], "torch.save wrote.*tenon.load"),
        (["graph.json", "weights.safetensors"], r"read it by tenon\.export\.load"),
        (["other"], "not a file of tenon.jit.save"),
    ],
)
def test_foreign_archives_are_refused_with_what_to_do(names, message):
    with pytest.raises((UnsupportedError, BundleError), match=message):
        reread(archive_of(**dict.fromkeys(names, b"")))


def edited(change, member="module.json"):
    """Bytes of a file in which ``change`` was applied to the JSON of ``member``."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(traced_net().save_to_buffer())) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target,
    ):
        for name in source.namelist():
            data = source.read(name)
            if name == member:
                document = json.loads(data)
                change(document)
                data = json.dumps(document)
            target.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(schema="other"),
        lambda d: d.update(version=99),
        lambda d: d.update(more=1),
        lambda d: d.pop("root"),
        lambda d: d.update(methods={}),
        lambda d: d["root"].update(name=3),
        lambda d: d["root"].update(training="yes"),
        lambda d: d["root"]["children"].update({"x.y": d["root"]["children"]["first"]}),
        lambda d: d["root"]["children"].update(first={"same": 7}),
        lambda d: d["root"]["children"].update(first={"same": 0}),
        lambda d: d["root"]["parameters"]["frozen"].update(tensor="nothing"),
        lambda d: d["root"]["parameters"]["frozen"].update(tensor="first.weight"),
        lambda d: d["root"]["parameters"].update(forward=d["root"]["parameters"]["frozen"]),
        lambda d: d["methods"]["forward"].update(arguments=["x", "y"]),
        lambda d: d["methods"]["forward"].update(arguments=["x): import os; os.x("]),
        lambda d: d["methods"]["forward"].update(arguments=["__class__"]),
        lambda d: d["methods"]["forward"].update(arguments=["lambda"]),
        lambda d: d["methods"].update({"bad name": d["methods"]["forward"]}),
        lambda d: d["methods"].update(__reduce__=d["methods"]["forward"]),
        lambda d: d["methods"].update(eval=d["methods"]["forward"]),
        lambda d: d["methods"]["forward"]["paths"].update({"first.weight": "first.bias"}),
        lambda d: d["methods"]["forward"]["paths"].update({"first.weight": "__class__.x"}),
        lambda d: d["methods"]["forward"]["paths"].update({"first.weight": "first.forward"}),
        lambda d: d["methods"]["forward"]["tensors"].popitem(),
        lambda d: d["methods"]["forward"].update(fixed=[["x", "1", "why"]]),
        lambda d: d["methods"]["forward"].update(any_shape=1),
    ],
)
def test_a_hostile_description_is_refused(change):
    with pytest.raises(BundleError, match="the file"):
        reread(edited(change))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["nodes"][0].update(kind="unknown"),
        lambda d: d["nodes"].append(
            {"kind": "call", "op": "host_call", "args": [], "attrs": {}, "outputs": []}
        ),
        lambda d: d.update(outputs=[[999, 0]]),
        lambda d: d["nodes"][0].update(name="x): pass #"),
        lambda d: d["symbols"].update(other={"example": 2, "least": 0, "most": None}),
        lambda d: d.update(
            guards=[{"value": [0, 0], "question": "bool", "other": None, "answer": 1, "where": ""}]
        ),
    ],
)
def test_a_hostile_graph_is_refused(change):
    with pytest.raises(BundleError, match="the file"):
        reread(edited(change, "methods/forward.json"))


def test_a_file_with_changed_bytes_is_refused():
    data = bytearray(traced_net().save_to_buffer())
    position = data.index(b"first.weight", data.index(b"weights.safetensors"))
    data[position] ^= 1
    with pytest.raises(BundleError, match="CRC"):
        reread(bytes(data))


def test_a_compressed_bomb_is_not_unpacked():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("module.json", b" " * 10_000_000)
    with pytest.raises(BundleError, match="compressed"):
        reread(file.getvalue())


def test_state_of_other_dtype_than_traced_is_saved_and_read():
    traced = jit.trace(nn.Linear(3, 2), tenon.ones(1, 3)).double()
    again = reread(traced.save_to_buffer())
    x = tenon.ones(2, 3).double()
    assert again.weight.dtype is tenon.float64 and tenon.equal(again(x), traced(x))


def test_the_size_of_a_header_is_bounded():
    file = io.BytesIO(traced_net().save_to_buffer())
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    contents["weights.safetensors"] = struct.pack("<Q", 1 << 60) + b"{}"
    with pytest.raises(BundleError):
        reread(archive_of(**contents))


def test_other_readers_and_modules_name_what_to_use(tmp_path):
    traced_net().save(tmp_path / "net.pt")
    with pytest.raises(RuntimeError, match=r"It is a trace: read it by tenon\.jit\.load"):
        tenon.load(tmp_path / "net.pt")
    program = tenon.export.export(nn.Linear(3, 2), (tenon.ones(1, 3),))
    tenon.export.save(program, tmp_path / "program.pt2")
    with pytest.raises(RuntimeError, match=r"read it by tenon\.export\.load"):
        tenon.load(tmp_path / "program.pt2")
    with pytest.raises(
        AttributeError, match=r"no attribute 'save'\. tenon\.jit\.trace\(module, example_inputs\)\.save"
    ):
        nn.Linear(3, 2).save(tmp_path / "x.pt")
    assert not hasattr(nn.Linear(3, 2), "save")


@pytest.mark.slow
def test_a_loaded_trace_is_exported_to_other_targets(tmp_path):
    loaded = reread(jit.trace(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), tenon.ones(1, 3)).save_to_buffer())
    tenon.export.save(loaded, tmp_path / "bundle", (tenon.ones(2, 3),), targets=["numpy"])
    assert tenon.export.verify(tmp_path / "bundle").passed


def test_named_tuples_are_given_to_traces_as_tuples_too():
    Pair = collections.namedtuple("Pair", "a b")
    pair = Pair(tenon.ones(2), tenon.full((2,), 3.0))
    traced = jit.trace(lambda pair: pair.a - pair.b, (pair,))
    for each in (traced, reread(traced.save_to_buffer())):
        assert each(pair).tolist() == [-2, -2] and each((pair.b, pair.a)).tolist() == [2, 2]
