"""Every function and layer of the catalogue can be captured: the graph computes what eager execution computes,
on the tensors that it was captured with and on others.
"""

import warnings

import pytest
from parity.catalogue import read
from parity.sides import Side, find, parts

import tenon
from tenon.errors import CaptureError
from tenon.export import capture
from tenon.tensors.pytree import tree_flatten, tree_unflatten

pytestmark = pytest.mark.slow

#: The shape of the result depends on the values.
_OF_VALUES = {
    "argwhere", "nonzero", "unique", "unique_consecutive", "masked_select", "bincount",
    "Tensor.masked_select", "Tensor.nonzero", "histc", "nn.functional.one_hot",
}  # fmt: skip
#: Python decides by values, or computes on the host.
_READ = {
    "hash_tensor", "istft", "histogram", "histogramdd", "normal", "masked_scatter",
    "Tensor.masked_scatter_", "linalg.lstsq", "linalg.inv_ex", "linalg.solve_ex", "linalg.ldl_factor",
    "linalg.ldl_factor_ex", "geqrf", "nn.AdaptiveLogSoftmaxWithLoss",
    *(f"special.{p}" for p in (
        "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
        "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
        "legendre_polynomial_p", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
    )),
}  # fmt: skip
#: They concern the memory of their argument.
_LAYOUT = {"as_strided", "as_strided_copy", "Tensor.as_strided_", "Tensor.resize_", "Tensor.resize_as_"}
REFUSED = _OF_VALUES | _READ | _LAYOUT


def calls():
    """Per name of the catalogue its first case, as a function of tensors, with the tensors."""
    for case in read():
        if case.kind not in ("function", "layer") or case.number:
            continue
        tenon.manual_seed(0)
        side = Side(tenon, "float32")
        content = case.content if isinstance(case.content, dict) and "call" in case.content else None
        args, kwargs = parts(content["call"] if content else case.content)
        target = side.construct(case.name, content.get("make", [])).eval() if case.kind == "layer" else None
        call = (side.build(list(args)) if args else [], side.build(kwargs))
        yield case.name, *_function(case.name, target, call)


def _function(name, target, call):
    leaves, spec = tree_flatten(call)
    leaves = [leaf.detach() if isinstance(leaf, tenon.Tensor) else leaf for leaf in leaves]
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, tenon.Tensor)]

    def function(*tensors):
        own = list(leaves)
        for i, tensor in zip(at, tensors, strict=True):
            own[i] = tensor.clone()  # some change it in place
        args, kwargs = tree_unflatten(own, spec)
        if target is not None:
            result = target(*args, **kwargs)
        elif name.startswith("Tensor."):
            result = getattr(args[0], name.rpartition(".")[2])
            result = result(*args[1:], **kwargs) if callable(result) else result
        else:
            result = find(tenon, name)(*args, **kwargs)
        return tuple(leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, tenon.Tensor))

    return function, [leaves[i] for i in at]


def outcome(function, tensors):
    """What eager execution returns, or None where it refuses."""
    tenon.manual_seed(5)
    try:
        return function(*tensors)
    except Exception:  # refusals of all kinds are compared with PyTorch's in test_functions.py
        return None


def problem(name, function, tensors):
    """What is wrong with the captured function; None if nothing is."""
    tenon.manual_seed(5)
    try:
        graph = capture(function, *tensors)
    except CaptureError as error:
        return None if name in REFUSED else f"{name}: {error}"
    if name in REFUSED:
        return f"{name} can be captured: it is not an exception"
    if any(node.effect for node in graph.calls):
        return None  # it draws random numbers
    others = [t.flip(tuple(range(t.ndim))) if t.ndim else t for t in tensors]
    for given in (tensors, others):
        expected = outcome(function, given)
        if expected is None:
            continue
        try:
            tenon.testing.assert_close(graph.run(*given), expected, equal_nan=True, rtol=1e-4, atol=1e-5)
        except AssertionError as error:
            return f"{name}: {error}"
    return None


def test_functions_and_layers_can_be_captured():
    problems, checked = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function, tensors in calls():
            if tensors and outcome(function, tensors):
                checked += 1
                problems.append(problem(name, function, tensors))

    assert not list(filter(None, problems))
    assert checked > 900
