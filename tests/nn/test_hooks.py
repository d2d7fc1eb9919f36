"""Hooks: handles, dictionaries, replacing values, errors. Their order is compared with torch elsewhere."""

import copy
import gc
import pickle
import warnings
import weakref
from collections import OrderedDict

import pytest

import tenon
from tenon import nn
from tenon.nn import hooks
from tenon.nn.modules import module as global_hooks
from tenon.tensors.autograd.handles import RemovableHandle


class Double(nn.Module):
    def forward(self, x, scale=2.0):
        return x * scale


def add_one(module, args):
    return args[0] + 1


def test_a_module_has_no_hook_dictionaries_until_one_is_used():
    module = Double()

    assert not any("hook" in name for name in module.__dict__)
    module.register_forward_hook(lambda *args: None)
    assert "_forward_hooks" in module.__dict__


def test_hook_dictionaries_can_be_read_and_edited_as_torchs():
    module = Double()

    assert isinstance(module._forward_hooks, OrderedDict) and len(module._forward_hooks) == 0
    module._forward_hooks[99] = lambda m, args, out: out + 1
    assert module(tenon.ones(1)).tolist() == [3.0]
    module._forward_hooks.clear()
    assert module(tenon.ones(1)).tolist() == [2.0]
    module._forward_pre_hooks = OrderedDict({1: add_one})
    assert module(tenon.ones(1)).tolist() == [4.0]
    del module._forward_pre_hooks
    assert module(tenon.ones(1)).tolist() == [2.0]


def test_handle_removes_its_hook_once():
    module = Double()
    handle = module.register_forward_hook(lambda m, a, o: o + 1)
    other = module.register_forward_hook(lambda m, a, o: o * 10)

    handle.remove()
    handle.remove()

    assert handle.id != other.id
    assert module(tenon.ones(1)).tolist() == [20.0]


def test_handle_is_a_context_manager():
    module = Double()

    with module.register_forward_pre_hook(add_one):
        assert module(tenon.ones(1)).tolist() == [4.0]

    assert module(tenon.ones(1)).tolist() == [2.0]


def test_removing_a_hook_forgets_its_flags():
    module = Double()
    handle = module.register_forward_hook(lambda m, a, k, o: o, with_kwargs=True, always_call=True)

    handle.remove()

    assert not module._forward_hooks_with_kwargs
    assert not module._forward_hooks_always_called


def test_handle_does_not_keep_the_module_alive():
    module = Double()
    handle = module.register_forward_hook(lambda *args: None)
    dead = weakref.ref(module)

    del module
    gc.collect()

    assert dead() is None
    handle.remove()


def test_handle_pickles_with_its_dictionary():
    table = hooks.HookDict()
    handle = RemovableHandle(table)
    table[handle.id] = "hook"

    again_table, again = pickle.loads(pickle.dumps((table, handle)))

    assert again.id == handle.id
    again.remove()
    assert len(again_table) == 0 and len(table) == 1
    lonely = pickle.loads(pickle.dumps(handle))
    lonely.remove()


def test_new_handles_never_reuse_an_id_that_was_unpickled():
    handle = RemovableHandle(hooks.HookDict())
    state = (None, handle.id + 1000, ())
    revived = RemovableHandle.__new__(RemovableHandle)

    revived.__setstate__(state)

    assert RemovableHandle(hooks.HookDict()).id > handle.id + 1000


def test_a_copied_module_keeps_its_hooks_but_not_the_originals_handles():
    module = Double()
    handle = module.register_forward_pre_hook(add_one)

    twin = copy.deepcopy(module)
    handle.remove()

    assert module(tenon.ones(1)).tolist() == [2.0]
    assert twin(tenon.ones(1)).tolist() == [4.0]


def test_a_hook_may_remove_itself_while_it_runs():
    module, seen = Double(), []

    def once(m, args, out):
        seen.append(1)
        handle.remove()

    handle = module.register_forward_hook(once)
    module(tenon.ones(1))
    module(tenon.ones(1))

    assert seen == [1]


def test_pre_hook_result_that_is_not_a_tuple_is_wrapped():
    module = Double()
    seen = []
    module.register_forward_pre_hook(lambda m, args: 5.0)
    module.register_forward_hook(lambda m, args, out: seen.append(args))

    assert module(tenon.ones(1)) == 10.0
    assert seen == [(5.0,)]


def test_hooks_run_when_only_global_ones_exist_and_stop_when_removed():
    module, seen = Double(), []
    handle = global_hooks.register_module_forward_hook(
        lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True
    )

    module(tenon.ones(1), scale=3.0)
    handle.remove()
    module(tenon.ones(1))

    assert seen == [{"scale": 3.0}]
    assert hooks.global_hooks is None


def test_every_change_of_a_call_hook_moves_the_generation():
    module = Double()
    seen = {hooks.generation()}

    handle = module.register_forward_hook(lambda *args: None)
    seen.add(hooks.generation())
    handle.remove()
    seen.add(hooks.generation())
    module._forward_hooks[1] = print
    seen.add(hooks.generation())
    module._forward_hooks.clear()
    seen.add(hooks.generation())
    global_hooks.register_module_forward_pre_hook(lambda *args: None).remove()
    seen.add(hooks.generation())

    assert len(seen) == 6


def test_always_called_hook_sees_none_and_its_own_error_becomes_a_warning():
    module, seen = Double(), []

    def fails(m, args, out):
        raise RuntimeError("hook trouble")

    module.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    module.register_forward_hook(fails, always_call=True)
    module.forward = lambda x: 1 / 0

    with warnings.catch_warnings(record=True) as caught, pytest.raises(ZeroDivisionError):
        warnings.simplefilter("always")
        module(1)

    assert seen == [None]
    assert "always_call=True`` raised an exception that was silenced" in str(caught[0].message)


def test_always_called_global_hook_gets_its_keywords_also_after_an_error():
    module, seen = Double(), []
    module.forward = lambda x, scale: 1 / 0
    handle = global_hooks.register_module_forward_hook(
        lambda m, args, kwargs, out: seen.append(kwargs), with_kwargs=True, always_call=True
    )

    with handle, pytest.raises(ZeroDivisionError):
        module(1, scale=2)

    assert seen == [{"scale": 2}]
