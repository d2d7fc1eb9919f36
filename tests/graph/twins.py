"""Run a program eagerly and compiled, and compare all observable results."""

import numpy as np

import tenon
from tenon import nn


def batch(i, *shape):
    """A batch of normal numbers that depends on ``i`` only."""
    return tenon.tensor(np.random.default_rng(i).normal(size=shape or (5, 4)).astype(np.float32))


def mlp(dropout=0.0):
    """Two layers and a dropout."""
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))


def seen(*things):
    """Values, gradients, state and options of ``things``, and the state of the random stream."""
    found = [("random stream", tenon.get_rng_state().numpy().copy())]
    for thing in things:
        if isinstance(thing, nn.Module):
            found += [(name, value.numpy().copy()) for name, value in thing.state_dict().items()]
            found += [(f"gradient of {name}", _array(p.grad)) for name, p in thing.named_parameters()]
        elif hasattr(thing, "param_groups"):
            for index, held in thing.state_dict()["state"].items():
                found += [(f"state {index} {name}", _array(value)) for name, value in held.items()]
            for group in thing.param_groups:
                found.append(("options", {k: v for k, v in group.items() if k != "params"}))
        else:
            found.append(("result", _array(thing)))
    return found


def _array(value):
    return value.detach().numpy().copy() if hasattr(value, "detach") else value


def assert_same(ours, theirs, tolerance=1e-5, where=""):
    """Two lists that ``seen`` returned hold the same."""
    assert [name for name, _ in ours] == [name for name, _ in theirs], where
    for (name, a), (_, b) in zip(ours, theirs, strict=True):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            assert a.dtype == b.dtype, f"{where} {name}"
            if np.array_equal(a, b):
                continue  # most are: a tenth of the time of comparing within a tolerance
            if a.dtype.kind == "f" and tolerance:
                np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=f"{where} {name}")
            else:
                np.testing.assert_array_equal(a, b, err_msg=f"{where} {name}")
        else:
            assert repr(a) == repr(b), f"{where} {name}"


def run(build, calls, compiled, **options):
    """Call what ``build`` returns ``calls`` times. ``build() -> (step, arguments(i), things to look at)``."""
    tenon.manual_seed(0)
    step, arguments, things = build()
    step = tenon.compile(step, **options) if compiled else step
    trace = []
    for i in range(calls):
        result = step(*arguments(i))
        trace.append(seen(*([result] if hasattr(result, "detach") else []), *things))
    return trace, step


def check(build, calls=8, programs=1, tolerance=1e-5, **options):
    """Eager and compiled are the same; ``programs`` were made (None: any number). Returns the compiled
    form."""
    eager, _ = run(build, calls, False)
    ours, step = run(build, calls, True, **options)
    for i, (a, b) in enumerate(zip(ours, eager, strict=True)):
        assert_same(a, b, tolerance, f"call {i}, {step.reasons}:")
    assert programs is None or len(step.programs) == programs, step.reasons
    return step


class Given:
    """The tensors that were passed last: a function may have changed them."""

    def __init__(self):
        self.tensors = []

    def __iter__(self):
        return iter(self.tensors)


def function(f, arguments=lambda i: (batch(i),)):
    """``build`` for a function whose arguments are looked at afterwards."""

    def build():
        given = Given()

        def fresh(i):
            made = arguments(i)
            given.tensors = [g for g in made if hasattr(g, "detach")]
            return made

        return f, fresh, given

    return build
