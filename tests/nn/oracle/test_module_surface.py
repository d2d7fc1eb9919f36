"""The names and signatures of torch's Module, one by one."""

import inspect

import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def test_every_public_name_of_a_torch_module_exists():
    missing = [n for n in dir(torch.nn.Module) if not n.startswith("_") and not hasattr(tenon.nn.Module, n)]

    assert missing == []


def test_private_names_that_other_libraries_use_exist():
    names = """
        _parameters _buffers _modules _non_persistent_buffers_set _load_from_state_dict _save_to_state_dict
        _version _apply _get_name _named_members _forward_hooks _forward_pre_hooks _backward_hooks
        _backward_pre_hooks _state_dict_hooks _load_state_dict_pre_hooks _load_state_dict_post_hooks
        _state_dict_pre_hooks _forward_hooks_with_kwargs _forward_pre_hooks_with_kwargs
        _forward_hooks_always_called _is_full_backward_hook _register_state_dict_hook
        _register_load_state_dict_pre_hook _call_impl
    """
    module = tenon.nn.Module()

    assert [n for n in names.split() if not hasattr(module, n)] == []


def test_signatures_of_the_public_methods_equal_torchs():
    different = {}
    for name in dir(torch.nn.Module):
        ours, theirs = getattr(tenon.nn.Module, name, None), getattr(torch.nn.Module, name)
        if name.startswith("_") or not inspect.isfunction(theirs):
            continue
        a, b = (
            [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
            for f in (ours, theirs)
        )
        if a != b:
            different[name] = (a, b)

    assert different == {}
