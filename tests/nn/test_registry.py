"""Registries of modules stay dicts and in sync with the attributes, whatever is done to them."""

import random

import pytest

import tenon
from tenon import nn

pytestmark = pytest.mark.together

NAMES = ("a", "b", "c", "d")


def steps(rng):
    """Random edits, as functions of the registry or of its model, which is a plain dict."""
    while True:
        name, other = rng.choice(NAMES), rng.choice(NAMES)
        value = rng.choice((None, nn.Parameter(tenon.ones(1))))
        yield rng.choice(
            (
                lambda d, n=name, v=value: d.__setitem__(n, v),
                lambda d, n=name, v=value: d.setdefault(n, v),
                lambda d, n=name: d.pop(n, None),
                lambda d, n=name: d.__delitem__(n) if n in d else None,
                lambda d: d.popitem() if d else None,
                lambda d, n=name, o=other, v=value: d.update({n: v, o: None}),
                lambda d, n=name, v=value: d.__ior__({n: v}),
                lambda d: d.clear() if len(d) == len(NAMES) else None,
            )
        )


@pytest.mark.parametrize("seed", range(20))
def test_random_edits_keep_registry_attributes_and_model_equal(seed):
    module, model = nn.Module(), {}
    before = set(module.__dict__)
    edits = steps(random.Random(seed))

    for _ in range(60):
        edit = next(edits)
        edit(module._parameters)
        edit(model)

        assert list(module._parameters.items()) == list(model.items())
        assert {k: v for k, v in module.__dict__.items() if k not in before} == model
        assert all(getattr(module, name) is value for name, value in model.items())


@pytest.mark.parametrize("seed", range(10))
def test_random_edits_of_all_three_registries_show_what_torch_would_find(seed):
    rng = random.Random(seed)
    module = nn.Module()
    registries = ("_parameters", "_buffers", "_modules")

    for _ in range(80):
        registry, name = rng.choice(registries), rng.choice(NAMES)
        members = getattr(module, registry)
        if name in members and rng.random() < 0.5:
            del members[name]
        else:
            make = {"_parameters": nn.Parameter, "_buffers": tenon.zeros, "_modules": lambda _: nn.Module()}[
                registry
            ]
            members[name] = make(tenon.ones(1)) if registry == "_parameters" else make(1)

        for each in NAMES:
            found = [getattr(module, r)[each] for r in registries if each in getattr(module, r)]
            assert hasattr(module, each) == bool(found)
            assert not found or getattr(module, each) is found[0]
