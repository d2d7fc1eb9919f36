"""``tenon.jit`` beside ``torch.jit``: signatures, results, warnings, refusals and names."""

import inspect
import io
import warnings

import numpy as np
import pytest

import tenon

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:.torch.jit.* is deprecated:DeprecationWarning"),
    pytest.mark.together,
]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def sides(torch):
    return (tenon, torch)


def both(sides, run):
    """What ``run(library)`` returns with either library."""
    ours, theirs = (run(lib) for lib in sides)
    return ours, theirs


def outcome(lib, run):
    """The result of ``run(lib)`` as lists, or its error; and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = listed(lib, run(lib))
        except Exception as error:
            result = error
    kinds = {str(w.message).partition(" might")[0] for w in caught if w.category is lib.jit.TracerWarning}
    return result, {kind for kind in kinds if kind.startswith("Converting")}


BASES = (AttributeError, TypeError, RuntimeError, ValueError, Exception)


def listed(lib, value):
    if isinstance(value, lib.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return type(value)(listed(lib, each) for each in value)
    if isinstance(value, dict):
        return {key: listed(lib, each) for key, each in value.items()}
    return value


def branch(x):
    return x * 2 if x.sum() > 0 else x


def counted(count=None):
    count = [0]

    def function(x):
        count[0] += 1
        return x.relu() if count[0] % 2 else x.sigmoid()

    return function


def x_of(lib, *shape):
    return lib.arange(float(np.prod(shape or (1,)))).reshape(shape) - 2


CASES = {
    "function": lambda t: t.jit.trace(lambda x: (x * 2).sin(), x_of(t, 3))(x_of(t, 2, 2)),
    "several arguments": lambda t: t.jit.trace(lambda x, y: x - y, (x_of(t, 3), x_of(t, 3)))(
        x_of(t, 4), x_of(t, 4)
    ),
    "list of arguments": lambda t: t.jit.trace(lambda x, y: x - y, [x_of(t, 3), x_of(t, 3)])(
        x_of(t, 4), x_of(t, 4)
    ),
    "tuple result": lambda t: t.jit.trace(lambda x: (x, x + 1), x_of(t, 3))(x_of(t, 3)),
    "list result": lambda t: t.jit.trace(lambda x: [x, x + 1], x_of(t, 3))(x_of(t, 3)),
    "dict result": lambda t: t.jit.trace(lambda x: {"a": x}, x_of(t, 3)),
    "dict result, not strict": lambda t: t.jit.trace(lambda x: {"a": x + 1}, x_of(t, 3), strict=False)(
        x_of(t, 3)
    ),
    "None in result": lambda t: t.jit.trace(lambda x: (x, None), x_of(t, 3)),
    "number in result": lambda t: t.jit.trace(lambda x: (x, 1), x_of(t, 3)),
    "number argument": lambda t: t.jit.trace(lambda x, k: x * k, (x_of(t, 3), 2)),
    "None argument": lambda t: t.jit.trace(lambda x, k: x, (x_of(t, 3), None)),
    "text argument": lambda t: t.jit.trace(lambda x, k: x, (x_of(t, 3), "a")),
    "dict argument": lambda t: t.jit.trace(lambda d: d["a"] * 2, ({"a": x_of(t, 3)},))({"a": x_of(t, 5)}),
    "nested argument": lambda t: t.jit.trace(lambda d: d[0][1] * 2, (([x_of(t, 3), x_of(t, 3)],),))(
        ([x_of(t, 5), x_of(t, 5)],)
    ),
    "no examples": lambda t: t.jit.trace(lambda x: x),
    "too few examples": lambda t: t.jit.trace(lambda x, y: x, (x_of(t, 3),)),
    "examples by name": lambda t: t.jit.trace(
        lambda a, b: a - 2 * b, example_kwarg_inputs={"b": x_of(t, 3), "a": x_of(t, 3)}
    )(b=x_of(t, 3), a=x_of(t, 3) * 5),
    "branch": lambda t: t.jit.trace(branch, t.ones(3))(-t.ones(3)),
    "float": lambda t: t.jit.trace(lambda x: x * float(x.sum()), t.ones(3))(2 * t.ones(3)),
    "item": lambda t: t.jit.trace(lambda x: x * x.sum().item(), t.ones(3))(2 * t.ones(3)),
    "integer": lambda t: t.jit.trace(lambda x: x + int(x[0]), t.ones(3))(2 * t.ones(3)),
    "list": lambda t: t.jit.trace(lambda x: x + x.tolist()[0], t.ones(3))(2 * t.ones(3)),
    "numpy": lambda t: t.jit.trace(lambda x: x + float(x.numpy()[0]), t.ones(3))(2 * t.ones(3)),
    "changing branch": lambda t: t.jit.trace(counted(), t.ones(3)),
    "changing branch, not checked": lambda t: t.jit.trace(counted(), -t.ones(3), check_trace=False)(
        -t.ones(3)
    ),
    "unrolled loop": lambda t: t.jit.trace(lambda x: sum(x * i for i in range(4)), t.ones(3))(x_of(t, 3)),
    "sizes": lambda t: t.jit.trace(lambda x: x.reshape(x.shape[0], -1).sum(1), x_of(t, 2, 3, 4))(
        x_of(t, 5, 3, 4)
    ),
    "flatten": lambda t: t.jit.trace(lambda x: x.flatten(1), x_of(t, 2, 3, 4))(x_of(t, 5, 2, 6)),
    "size in arithmetic": lambda t: t.jit.trace(lambda x: x / x.size(0), x_of(t, 4))(x_of(t, 8)),
    "detach": lambda t: gradient(t, lambda x: x.detach() * x),
    "in place on a copy": lambda t: gradient(t, in_place),
    "function of a closed-over tensor": lambda t: t.jit.trace(closed_over(t), t.ones(3))(x_of(t, 3)),
    "method": lambda t: t.jit.trace(t.nn.ReLU().extra_repr, t.ones(3)),
    "forward": lambda t: type(t.jit.trace(t.nn.ReLU().forward, t.ones(3))).__name__,
    "trace of a trace": lambda t: traced_twice(t),
    "unknown method": lambda t: t.jit.trace_module(t.nn.ReLU(), {"other": t.ones(3)}),
    "methods of a function": lambda t: t.jit.trace_module(lambda x: x, {"forward": t.ones(3)}),
    "no methods": lambda t: t.jit.trace_module(t.nn.ReLU(), t.ones(3)),
    "freeze a module": lambda t: t.jit.freeze(t.nn.ReLU()),
    "freeze in train mode": lambda t: t.jit.freeze(t.jit.trace(t.nn.ReLU(), t.ones(2))),
    "frozen": lambda t: list(t.jit.freeze(t.jit.trace(t.nn.Linear(2, 1).eval(), t.ones(2))).state_dict()),
    "missing file": lambda t: t.jit.load("/nowhere/model.pt"),
    "no archive": lambda t: t.jit.load(io.BytesIO(b"junk")),
    "missing attribute": lambda t: t.jit.trace(t.nn.Linear(2, 1), t.ones(1, 2)).in_features,
    "extra files": lambda t: extra_files(t),
    "fork": lambda t: t.jit.wait(t.jit.fork(lambda a, b: a + b, t.ones(2), b=t.ones(2))),
    "isinstance": lambda t: [t.jit.isinstance(value, kind) for value, kind in kinds(t)],
    "isinstance of a bare list": lambda t: t.jit.isinstance([1], list),
    "attribute": lambda t: tuple(t.jit.Attribute(3, int)),
    "annotate": lambda t: t.jit.annotate(list[int], []),
    "scripting": lambda t: (t.jit.is_scripting(), t.jit.is_tracing()),
    "onednn": lambda t: (t.jit.onednn_fusion_enabled(), t.jit.set_fusion_strategy([("STATIC", 1)])),
    "strict_fusion": lambda t: t.jit.strict_fusion().__enter__(),
}


def in_place(x):
    y = x.clone()
    y[1:] *= 3
    return y * y


def closed_over(lib):
    weight = lib.full((3,), 2.0)
    return lambda x: x * weight


def gradient(lib, function):
    traced = lib.jit.trace(function, lib.ones(3))
    x = x_of(lib, 3).requires_grad_()
    traced(x).sum().backward()
    return x.grad


def traced_twice(lib):
    traced = lib.jit.trace(lib.nn.ReLU(), lib.ones(2))
    return lib.jit.trace(traced, lib.ones(2)) is traced


def extra_files(lib):
    file = io.BytesIO()
    lib.jit.save(lib.jit.trace(lambda x: x * 2, lib.ones(2)), file, _extra_files={"a": "text", "b": b"\x00"})
    file.seek(0)
    extra = {"a": "", "b": "", "missing": "x"}
    module = lib.jit.load(file, _extra_files=extra)
    return extra, type(module).__name__, module(lib.ones(2))


def kinds(lib):
    return [
        ([1, 2], list[int]), ([1, "a"], list[int]), ({"a": lib.ones(1)}, dict[str, lib.Tensor]),
        ((1, "a"), tuple[int, str]), ((1, 2), tuple[int, str]), ((1,), tuple[int, str]),
        (None, int | None), (1, int | None), ("a", int | None),
        ([[1]], list[list[int]]), (3, int), ([], list[int]), (1, (str, int)),
    ]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_results_errors_and_warnings_are_those_of_torch(sides, case):
    (ours, our_notes), (theirs, notes) = both(sides, lambda lib: outcome(lib, CASES[case]))

    assert our_notes == notes
    if isinstance(theirs, Exception):
        base = next(kind for kind in BASES if isinstance(theirs, kind))
        assert isinstance(ours, base)
    else:
        assert ours == theirs


@pytest.mark.parametrize(
    "name", ["trace", "trace_module", "save", "load", "freeze", "fork", "wait", "isinstance"]
)
def test_signatures_are_those_of_torch(torch, name):
    def parameters(lib):
        found = inspect.signature(getattr(lib.jit, name)).parameters.values()
        return [
            (p.name, p.default if isinstance(p.default, int | float | None) else "")
            for p in found
            if (p.name, p.kind) != ("dynamic", p.KEYWORD_ONLY)
        ]

    ours, theirs = parameters(tenon), parameters(torch)
    assert [n for n, _ in ours] == [n for n, _ in theirs]
    unit = "_compilation_unit"  # an object there
    assert [p for p in ours if p[0] != unit] == [p for p in theirs if p[0] != unit]


def test_all_names_are_there(torch):
    assert [name for name in torch.jit.__all__ if not hasattr(tenon.jit, name)] == []
    for name in ("TopLevelTracedModule", "TracedModule", "RecursiveScriptModule", "ScriptModule"):
        ours, theirs = (getattr(lib.jit, name).__mro__ for lib in (tenon, torch))
        known = [kind.__name__ for kind in theirs]
        assert [kind.__name__ for kind in ours if kind.__name__ in known] == known


class _Models:
    """Models of either library, with the same weights."""

    def __init__(self, sides):
        self.sides = sides

    def pair(self, make, *shape):
        (ours, theirs) = (make(lib.nn).eval() for lib in self.sides)
        weights = {k: v.numpy() for k, v in theirs.state_dict().items()}
        ours.load_state_dict({k: tenon.from_numpy(v) for k, v in weights.items()})
        example = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        return [
            (lib, model, lib.jit.trace(model, lib.from_numpy(example)))
            for lib, model in zip(self.sides, (ours, theirs), strict=True)
        ]


MODELS = {
    "linear": (lambda nn: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (2, 3), (5, 3)),
    "convolution": (
        lambda nn: nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        ),
        (1, 2, 12, 12),
        (3, 2, 17, 14),
    ),
    "normalized": (
        lambda nn: nn.Sequential(nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 6)),
        (2, 4, 6),
        (1, 9, 6),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_traced_models_compute_what_torchs_do(sides, name):
    make, shape, other = MODELS[name]
    found = []
    for lib, _, traced in _Models(sides).pair(make, *shape):
        x = lib.from_numpy(np.random.default_rng(1).normal(size=other).astype(np.float32)).requires_grad_()
        result = traced(x)
        result.square().sum().backward()
        grads = {n: p.grad.numpy() for n, p in traced.named_parameters()}
        names = [n for n, _ in traced.named_modules()], list(traced.state_dict()), traced.training
        found.append((result.detach().numpy(), x.grad.numpy(), grads, names, str(traced)))
    (ours, our_x, our_grads, our_names, our_text), (theirs, x, grads, names, text) = found

    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(our_x, x, rtol=1e-4, atol=1e-4)
    for key, grad in grads.items():
        np.testing.assert_allclose(our_grads[key], grad, rtol=1e-4, atol=1e-4)
    assert our_names == names and our_text == text


def test_an_archive_of_torch_is_refused_with_what_to_do(torch, tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 1)), str(tmp_path / "scripted.pt"))
    torch.save(torch.nn.Linear(2, 1).state_dict(), tmp_path / "state.pt")

    with pytest.raises(RuntimeError, match=r"scripted\.pt is a TorchScript archive(.|\n)*tenon\.jit\.trace"):
        tenon.jit.load(tmp_path / "scripted.pt")
    with pytest.raises(RuntimeError, match=r"state\.pt is a checkpoint that torch\.save wrote.*tenon\.load"):
        tenon.jit.load(tmp_path / "state.pt")
