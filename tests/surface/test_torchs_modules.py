"""``overrides``, ``jit``, ``hub``, ``_utils``, ``layout``: torch's names, with answers that are true of tenon."""

import copy
import functools
import pickle

import numpy as np
import pytest

import tenon
from tenon import hub, jit, optim
from tenon._utils import ExceptionWrapper, _flatten_dense_tensors, _unflatten_dense_tensors
from tenon.autograd.gradcheck import _get_numerical_jacobian
from tenon.autograd.profiler import emit_nvtx
from tenon.autograd.profiler_util import _format_time
from tenon.compat.jit import scripting
from tenon.errors import TenonWarning, UnsupportedError
from tenon.nn import _reduction
from tenon.utils.data import DataLoader, IterDataPipe, functional_datapipe
from tenon.utils.data._utils.collate import collate, default_collate_fn_map
from tenon.utils.data.datapipes.iter import IterableWrapper


def test_a_mode_that_would_see_nothing_is_not_entered():
    with pytest.raises(UnsupportedError, match=r"tenon\.profiler"), emit_nvtx():
        pass
    assert not tenon.profiler.itt.is_available()


def test_a_script_stays_python_and_marks_for_it_change_nothing(monkeypatch):
    def double(x):
        return 2 * x

    monkeypatch.setattr(scripting, "_warned", [])
    with pytest.warns(TenonWarning, match=r"script\(double\).*tenon\.compile"):
        assert jit.script(double) is double
    model = tenon.nn.Linear(1, 1)
    assert jit.script(model) is model  # warned of once
    with pytest.raises(UnsupportedError, match=r"jit\.trace\(double, example_inputs\)\.save"):
        jit.script(double).save("double.pt")
    with pytest.raises(UnsupportedError, match=r"jit\.trace\(double, example_inputs\)\.save"):
        jit.save(double, "double.pt")
    for ask in (lambda: print(double.code), lambda: double.graph.nodes(), lambda: str(double.schema)):
        with pytest.raises(UnsupportedError, match=r"has no '\w+'. Trace it: tenon\.jit\.trace\(double"):
            ask()
    assert "tenon.jit.trace(double, example_inputs)" in repr(copy.copy(double).code)
    with pytest.raises(AttributeError, match=r"no attribute 'graph'. tenon\.jit\.trace\(module"):
        model.graph  # noqa: B018 - what a script would have
    assert jit.ignore(double) is jit.ignore(drop=True)(double) is jit.unused(double) is double
    assert not jit.is_scripting() and not jit.is_tracing()
    assert not isinstance(tenon.nn.Linear(1, 1), jit.ScriptModule)
    monkeypatch.setattr(scripting, "_warned", [])
    monkeypatch.setenv("PYTORCH_JIT", "0")
    assert jit.script(double) is double


async def _wait():
    pass


def _generate():
    yield 1


def _sum_all(*tensors):
    return sum(tensors)


def _add(x, *, y=1):
    return x + y


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda x: x, r"test_torchs_modules.py:\d+: Expected a single top-level function, not a lambda"),
        (_wait, "Expected a single top-level function; async"),
        (_generate, "Yield aren't supported"),
        (_sum_all, "can't take variable number of arguments"),
        (_add, "keyword-only arguments with defaults"),
        (tenon.nn.Linear, r"inherits from nn.Module. Pass an instance, Linear\("),
        (1, "<class 'int'> is a built-in class"),
        ("def f(x): return x", "<class 'str'> is a built-in class"),
        (tenon.ones(1), "is a built-in class"),
        (len, "is a built-in class"),
    ],
)
def test_what_no_script_compiles_is_refused(value, reason, monkeypatch):
    monkeypatch.setattr(scripting, "_warned", [value])

    with pytest.raises(RuntimeError if callable(value) and value is not len else TypeError, match=reason):
        jit.script(value)
    monkeypatch.setenv("PYTORCH_JIT", "0")
    assert jit.script(value) is value


def test_what_scripts_compile_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(scripting, "_warned", [None])

    class Counter:
        def __call__(self, x):
            return x

    @functools.wraps(_add)
    def wrapper(*args):
        return args

    wrapper.__wrapped__ = scripting.script
    model = tenon.nn.Linear(1, 1)
    for value in (
        Counter,
        Counter(),
        [1],
        {"a": 1},
        model.forward,
        wrapper,
        tenon.relu,
        functools.partial(max),
    ):
        assert jit.script(value) is value


def test_hub_runs_the_entries_of_a_folder(tmp_path):
    (tmp_path / "hubconf.py").write_text('def two(n=2):\n    """Two."""\n    return n\n\ndef _own(): pass\n')

    assert hub.load(str(tmp_path), "two", source="local") == 2
    assert hub.load(str(tmp_path), "two", 3, source="local", trust_repo=True) == 3
    assert hub.list(str(tmp_path)) == ["two"]
    assert hub.help(str(tmp_path), "two") == "Two."
    with pytest.raises(RuntimeError, match="Cannot find callable three"):
        hub.load(str(tmp_path), "three", source="local")
    with pytest.raises(UnsupportedError, match="Clone pytorch/vision"):
        hub.load("pytorch/vision", "resnet18")


def test_hub_fetches_weights_once_and_checks_their_hash(tmp_path):
    served = tmp_path / "weights-00000000.pt"
    tenon.save({"w": tenon.arange(3)}, served)
    url, folder = served.as_uri(), tmp_path / "kept"

    with pytest.raises(RuntimeError, match=r"invalid hash value .expected .00000000"):
        hub.load_state_dict_from_url(url, str(folder), check_hash=True)
    assert list(folder.iterdir()) == []
    assert hub.load_state_dict_from_url(url, str(folder))["w"].tolist() == [0, 1, 2]
    served.unlink()
    assert hub.load_state_dict_from_url(url, str(folder))["w"].tolist() == [0, 1, 2]


def test_an_exception_is_raised_again_with_its_first_words():
    class Two(Exception):
        def __init__(self, a, b):
            super().__init__(a, b)

    for made, kind in ((KeyError("here"), KeyError), (Two(1, 2), RuntimeError)):
        try:
            raise made
        except Exception:
            kept = ExceptionWrapper(where="in worker 3")
        with pytest.raises(
            kind, match=rf"(?s)Caught {type(made).__name__} in worker 3\.\nOriginal Traceback"
        ):
            pickle.loads(pickle.dumps(kept)).reraise() if kind is KeyError else kept.reraise()


def test_tensors_laid_end_to_end_are_taken_apart_again():
    parts = [tenon.arange(6.0).reshape(2, 3), tenon.ones(2)]
    flat = _flatten_dense_tensors(parts)

    assert [p.tolist() for p in _unflatten_dense_tensors(flat, parts)] == [p.tolist() for p in parts]


def test_old_switches_set_what_they_set():
    try:
        tenon.set_default_tensor_type("torch.DoubleTensor")
        assert tenon.zeros(1).dtype is tenon.float64
        tenon.set_deterministic_debug_mode("warn")
        assert tenon.get_deterministic_debug_mode() == 1
        assert tenon.is_deterministic_algorithms_warn_only_enabled()
        tenon.set_warn_always(True)
        assert tenon.is_warn_always_enabled()
        with pytest.raises(TypeError, match="expects a bool"):
            tenon.set_warn_always(1)
    finally:
        tenon.set_warn_always(False)
        tenon.set_default_tensor_type(tenon.FloatTensor)
        tenon.set_deterministic_debug_mode(0)
    assert tenon.zeros(1).dtype is tenon.float32


def test_an_operators_name_can_be_copied():
    add = tenon.ops.aten.add.Tensor

    assert copy.deepcopy(add) == add == pickle.loads(pickle.dumps(add))


def test_sparse_adam_refuses_to_step_as_every_gradient_is_dense():
    p = tenon.zeros(1, requires_grad=True)
    optimizer = optim.SparseAdam([p], lr=0.1)
    for options in ({"lr": 0.0}, {"eps": -1.0}, {"betas": (1.0, 0.9)}, {"lr": tenon.ones(2)}):
        with pytest.raises(ValueError, match=r"Invalid|1-element"):
            optim.SparseAdam([p], **options)

    assert optimizer.step(lambda: 3) == 3 and isinstance(optimizer, optim.Optimizer)
    p.grad = tenon.ones(1)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        optimizer.step()


def test_numerical_jacobians_of_inputs_and_of_what_a_function_closes_over():
    w = tenon.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=tenon.float64, requires_grad=True)
    x = tenon.ones(2, dtype=tenon.float64, requires_grad=True)
    ((by_x,),) = _get_numerical_jacobian(lambda v: (w @ v).detach(), (x,), eps=1e-6)
    ((by_w,),) = _get_numerical_jacobian(lambda v: (w @ v).detach(), (x,), target=w, eps=1e-6)

    np.testing.assert_allclose(by_x.numpy(), [[1, 3], [2, 4]], atol=1e-6)
    np.testing.assert_allclose(by_w.numpy(), [[1, 0], [1, 0], [0, 1], [0, 1]], atol=1e-6)


def test_small_names():
    assert [_reduction.get_enum(r) for r in ("none", "mean", "sum")] == [0, 1, 2]
    assert [_format_time(t) for t in (12, 1500, 2.5e6)] == ["12.000us", "1.500ms", "2.500s"]
    assert not any(m.is_available() or m.device_count() for m in (tenon.xpu, tenon.mps, tenon.mtia))
    assert tenon.accelerator.is_available() == (tenon.accelerator.current_accelerator() is not None)


def test_a_pipe_is_a_method_of_others():
    @functional_datapipe("doubled")
    class Doubled(IterDataPipe):
        def __init__(self, source):
            self.source = source

        def __iter__(self):
            return (2 * x for x in self.source)

    try:
        batches = list(DataLoader(IterableWrapper(range(3)).doubled(), batch_size=2))
    finally:
        del IterDataPipe.functions["doubled"]

    assert [b.tolist() for b in batches] == [[0, 2], [4]]
    assert not hasattr(IterableWrapper([]), "doubled")


def test_samples_of_another_type_are_collated_by_a_table():
    class Name(str):
        __slots__ = ()

    table = {Name: lambda batch, *, collate_fn_map: "+".join(batch), **default_collate_fn_map}
    found = collate(
        [{"n": Name("a"), "x": (1.0, "s")}, {"n": Name("b"), "x": (2.0, "t")}], collate_fn_map=table
    )

    assert found["n"] == "a+b" and found["x"][0].tolist() == [1.0, 2.0] and found["x"][1] == ("s", "t")
    with pytest.raises(TypeError, match="collate_fn_map"):
        collate([object()])
