"""Saving and loading state: atomic, whatever the module's own code does."""

from collections import OrderedDict

import pytest

import tenon
from tenon import nn
from tenon.errors import StateDictError

pytestmark = pytest.mark.together


class Affine(nn.Module):
    def __init__(self, value=1.0):
        super().__init__()
        self.weight = nn.Parameter(tenon.full((3, 2), value))
        self.register_buffer("calls", tenon.full((1,), value))


def pair(value=1.0, first=Affine, second=Affine):
    return nn.Sequential(OrderedDict(a=first(value), b=second(value)))


def values(module):
    return {n: t.tolist() if isinstance(t, tenon.Tensor) else t for n, t in module.state_dict().items()}


def test_state_dict_shares_memory_and_is_detached():
    module = Affine()
    state = module.state_dict()

    state["weight"].fill_(7)

    assert module.weight.tolist() == [[7.0, 7.0]] * 3
    assert not state["weight"].requires_grad
    assert module.state_dict(keep_vars=True)["weight"] is module.weight


def test_state_dict_writes_into_a_given_dict():
    mine = OrderedDict()

    assert pair().state_dict(destination=mine, prefix="net.") is mine
    assert list(mine) == ["net.a.weight", "net.a.calls", "net.b.weight", "net.b.calls"]


def test_positional_arguments_of_state_dict_are_deprecated_but_work():
    mine = OrderedDict()

    with pytest.warns(FutureWarning, match=r"Positional args are being deprecated"):
        result = Affine().state_dict(mine, "p.", True)

    assert result is mine
    assert isinstance(mine["p.weight"], nn.Parameter)


def test_metadata_holds_the_version_of_every_module():
    class Second(Affine):
        _version = 2

    state = pair(second=Second).state_dict()

    assert dict(state._metadata) == {"": {"version": 1}, "a": {"version": 1}, "b": {"version": 2}}


def test_load_copies_into_the_same_parameters():
    module, source = pair(1.0), pair(2.0)
    weight, memory = module.a.weight, module.a.weight.raw

    keys = module.load_state_dict(source.state_dict())

    assert repr(keys) == "<All keys matched successfully>"
    assert keys.missing_keys == [] and keys.unexpected_keys == []
    assert module.a.weight is weight and weight.raw is memory
    assert values(module) == values(source)


def test_load_accepts_any_mapping_and_leaves_it_alone():
    source = pair(2.0)
    given = dict(source.state_dict())
    before = list(given)

    pair().load_state_dict(given)

    assert list(given) == before


def test_loading_does_not_mark_the_given_metadata():
    state = pair(2.0).state_dict()

    pair().load_state_dict(state, assign=True)

    assert all("assign_to_params_buffers" not in entry for entry in state._metadata.values())


BAD = {
    "missing": lambda s: s.pop("b.weight"),
    "unexpected": lambda s: s.update(extra=tenon.ones(1)),
    "size": lambda s: s.update({"b.weight": tenon.ones(9, 9)}),
    "last size": lambda s: s.update({"b.calls": tenon.ones(9)}),
    "no tensor": lambda s: s.update({"b.calls": "text"}),
    "no data": lambda s: s.update({"b.calls": tenon.ones(1, device="meta")}),
}
# Assigning a tensor without data is what assign=True is for, so that one does not fail.
FAILURES = {f"copy, {name}": (damage, False) for name, damage in BAD.items()}
FAILURES |= {f"assign, {name}": (damage, True) for name, damage in BAD.items() if name != "no data"}


class Renames(Affine):
    """As modules do that read older files: changes the keys, then uses what was loaded."""

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        if prefix + "w" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.total = float(self.weight.detach().sum())
        self.calls.add_(1)


class Extra(Affine):
    def __init__(self, value=1.0):
        super().__init__(value)
        self.word = "old"

    def get_extra_state(self):
        return {"word": self.word}

    def set_extra_state(self, state):
        self.word = state["word"]
        self.loaded = True


class PreHook(Affine):
    def __init__(self, value=1.0):
        super().__init__(value)
        self.register_load_state_dict_pre_hook(self.before)

    def before(self, module, state_dict, prefix, *rest):
        module.weight.data = tenon.zeros(3, 2)
        module.register_buffer("late", tenon.zeros(1), persistent=False)


class PostHook(nn.Sequential):
    def __init__(self, value=1.0):
        super().__init__(Affine(value))
        self.sums = []
        self.register_load_state_dict_post_hook(
            lambda m, keys: m.sums.append(float(m[0].weight.detach().sum()))
        )


KINDS = {"plain": Affine, "renames": Renames, "extra": Extra, "pre hook": PreHook, "post hook": PostHook}


@pytest.mark.parametrize("first", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("damage, assign", FAILURES.values(), ids=FAILURES)
def test_a_failed_load_changes_nothing(first, damage, assign):
    module = pair(1.0, first=first)
    state = pair(2.0, first=first).state_dict()
    if first is Extra:
        state["a._extra_state"] = {"word": "new"}
    damage(state)
    before = values(module)
    members = {n: (t, t.raw) for n, t in module.state_dict(keep_vars=True).items() if "_extra" not in n}
    attributes = {k: v for k, v in module.a.__dict__.items() if k != "sums"}

    with pytest.raises(StateDictError, match=r"Nothing was loaded"):
        module.load_state_dict(state, assign=assign)

    assert values(module) == before
    for name, (tensor, raw) in members.items():
        assert module.state_dict(keep_vars=True)[name] is tensor and tensor.raw is raw
    assert {k: v for k, v in module.a.__dict__.items() if k != "sums"} == attributes
    if first is Extra:
        assert module.a.word == "old"


@pytest.mark.parametrize("first", KINDS.values(), ids=KINDS)
def test_a_good_load_goes_through_whatever_code_the_module_has(first):
    module = pair(1.0, first=first)

    module.load_state_dict(pair(2.0, first=first).state_dict())

    assert module.b.weight.tolist() == [[2.0, 2.0]] * 3
    if first is Renames:
        assert (module.a.total, module.a.calls.tolist()) == (12.0, [3.0])
    if first is Extra:
        assert module.a.loaded
    if first is PostHook:
        assert module.a.sums == [12.0]


def test_an_override_that_raises_leaves_everything_as_it_was():
    class Raises(Affine):
        def _load_from_state_dict(self, *args):
            super()._load_from_state_dict(*args)
            raise ZeroDivisionError("own trouble")

    module = pair(1.0, first=Renames, second=Raises)
    before = values(module)

    with pytest.raises(ZeroDivisionError):
        module.load_state_dict(pair(2.0).state_dict())

    assert values(module) == before


def test_a_read_only_parameter_is_found_before_anything_is_written():
    module = pair(1.0)
    module.b.calls.raw.flags.writeable = False

    with pytest.raises(RuntimeError, match=r'While copying the parameter named "b.calls"'):
        module.load_state_dict(pair(2.0).state_dict())

    assert module.a.weight.tolist() == [[1.0, 1.0]] * 3


def test_a_load_inside_another_load_is_undone_with_it():
    class Outer(nn.Module):
        def __init__(self, value=1.0):
            super().__init__()
            self.inner = Affine(value)

        def _load_from_state_dict(self, state_dict, prefix, *rest):
            inner = prefix + "inner."
            self.inner.load_state_dict(
                {k[len(inner) :]: v for k, v in state_dict.items() if k.startswith(inner)}
            )

    module = pair(1.0, first=Outer)
    state = pair(2.0, first=Outer).state_dict()
    state["b.weight"] = tenon.ones(9)

    with pytest.raises(StateDictError):
        module.load_state_dict(state)

    assert module.a.inner.weight.tolist() == [[1.0, 1.0]] * 3


def test_loading_private_method_alone_writes_at_once():
    module, errors = Affine(), []

    module._load_from_state_dict(Affine(5.0).state_dict(), "", {}, True, [], [], errors)

    assert errors == []
    assert module.weight.tolist() == [[5.0, 5.0]] * 3


def test_every_problem_is_listed_at_once_with_its_path():
    module = pair()
    state = module.state_dict()
    del state["a.weight"]
    state["more"] = tenon.ones(1)
    state["b.weight"] = tenon.ones(2, 2)

    with pytest.raises(RuntimeError) as caught:
        module.load_state_dict(state)

    assert str(caught.value) == (
        "Error(s) in loading state_dict for Sequential:\n"
        '\tMissing key(s) in state_dict: "a.weight". \n'
        '\tUnexpected key(s) in state_dict: "more". \n'
        "\tsize mismatch for b.weight: copying a param with shape torch.Size([2, 2]) from checkpoint, the "
        "shape in "
        "current model is torch.Size([3, 2]).\n"
        "Nothing was loaded: the module is unchanged. Pass strict=False to load the keys that do match."
    )


def test_keys_of_a_data_parallel_wrapper_are_recognised():
    state = {f"module.{key}": value for key, value in Affine().state_dict().items()}

    with pytest.raises(RuntimeError, match=r'All keys start with "module."'):
        Affine().load_state_dict(state)


def test_not_strict_loads_what_fits_and_reports_the_rest():
    module, state = pair(1.0), pair(2.0).state_dict()
    del state["a.weight"]
    state["what"] = tenon.ones(1)

    keys = module.load_state_dict(state, strict=False)

    assert keys.missing_keys == ["a.weight"] and keys.unexpected_keys == ["what"]
    assert repr(keys) == "_IncompatibleKeys(missing_keys=['a.weight'], unexpected_keys=['what'])"
    assert module.a.weight.tolist() == [[1.0, 1.0]] * 3
    assert module.b.weight.tolist() == [[2.0, 2.0]] * 3


def test_a_key_for_a_reserved_name_is_unexpected():
    module = Affine()
    module.register_parameter("bias", None)

    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "bias"'):
        module.load_state_dict({**module.state_dict(), "bias": tenon.ones(1)})


def test_loading_into_a_meta_module_warns_and_assign_fills_it():
    module = nn.Module()
    module.weight = nn.Parameter(tenon.ones(2, device="meta"))
    given = {"weight": tenon.full((2,), 4.0)}

    with pytest.warns(UserWarning, match=r"which is a no-op"):
        module.load_state_dict(given)
    module.load_state_dict(given, assign=True)

    assert module.weight.tolist() == [4.0, 4.0]
    assert isinstance(module.weight, nn.Parameter) and module.weight.requires_grad


def test_assign_keeps_the_models_requires_grad_and_shares_memory():
    module, given = Affine(), {"weight": tenon.zeros(3, 2), "calls": tenon.zeros(1)}
    module.weight.requires_grad_(False)

    module.load_state_dict(given, assign=True)

    assert not module.weight.requires_grad
    given["weight"].fill_(3)
    assert module.weight.tolist() == [[3.0, 3.0]] * 3


def test_one_element_vectors_load_into_scalars():
    module = nn.Module()
    module.register_buffer("scale", tenon.zeros(()))

    module.load_state_dict({"scale": tenon.ones(1)})

    assert module.scale.item() == 1.0


def test_values_are_cast_to_the_models_dtype():
    module = Affine()

    module.load_state_dict(Affine(2.0).double().state_dict())

    assert module.weight.dtype is tenon.float32
    assert module.weight.tolist() == [[2.0, 2.0]] * 3


def test_shared_parameters_load_once_each_under_both_names():
    module = pair(1.0)
    module.b.weight = module.a.weight

    module.load_state_dict(pair(2.0).state_dict())

    assert module.b.weight is module.a.weight
    assert module.a.weight.tolist() == [[2.0, 2.0]] * 3


def test_load_pre_hooks_survive_pickling_and_deepcopy():
    import copy
    import pickle

    module = nn.Sequential(Hooked())
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        twin.load_state_dict(module.state_dict())
        assert twin[0].seen == 1
    assert module[0].seen == 0


class Hooked(Affine):
    def __init__(self):
        super().__init__()
        self.seen = 0
        self.register_load_state_dict_pre_hook(count)


def count(module, *rest):
    module.seen += 1
