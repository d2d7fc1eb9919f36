"""torch's old tensor types, and which arguments ``to`` takes."""

import pickle

import pytest

import tenon
from tenon import nn


def test_a_tensor_type_makes_tensors_of_its_dtype():
    assert tenon.LongTensor([1, 2]).dtype == tenon.int64
    assert tenon.DoubleTensor(2, 3).shape == (2, 3)
    assert tenon.ByteTensor(2).dtype == tenon.uint8
    assert tenon.FloatTensor([1.5]).tolist() == [1.5]


def test_a_tensor_is_an_instance_of_the_type_of_its_dtype_only():
    assert isinstance(tenon.zeros(1), tenon.FloatTensor)
    assert not isinstance(tenon.zeros(1), tenon.LongTensor)
    assert isinstance(nn.Linear(1, 1).half().weight, tenon.HalfTensor)
    assert type(tenon.LongTensor(1)) is tenon.Tensor


def test_type_converts_to_a_tensor_type():
    assert tenon.zeros(1).type(tenon.LongTensor).dtype == tenon.int64


def test_a_tensor_type_refuses_a_tensor_of_another_dtype():
    with pytest.raises(TypeError, match=r"use tensor.to\(torch.int64\)"):
        tenon.LongTensor(tenon.zeros(2))


@pytest.mark.parametrize(
    "args",
    [("cpu", True), (None, True), ([],), ({},), ("cpu", tenon.int64, True, True, True), (True,), ("cpu", 1)],
    ids=str,
)
def test_to_refuses_arguments_that_torch_refuses(args):
    with pytest.raises(TypeError, match=r"to\(\) received an invalid"):
        tenon.zeros(1).to(*args)


def test_to_takes_every_form_of_torch():
    x = tenon.zeros(2)

    assert x.to("cpu", tenon.int64, True).dtype == tenon.int64
    assert x.to(tenon.float64, True, True).dtype == tenon.float64
    assert x.to(tenon.ones(1, dtype=tenon.int8), False).dtype == tenon.int8
    assert x.to(None, None) is x
    assert x.to("cpu", None, False, True) is not x
    assert x.to(int).dtype == tenon.int64


def test_module_to_refuses_a_copy():
    with pytest.raises(RuntimeError, match="does not accept copy argument"):
        nn.Linear(1, 1).to("cpu", copy=True)


def test_a_replica_has_no_parameters_of_its_own():
    module = nn.ParameterDict({"a": nn.Parameter(tenon.ones(2))})
    replica = module._replicate_for_data_parallel()

    replica.a = module.a.view_as(module.a)

    assert list(replica.parameters()) == []
    assert list(module.parameters()) == [module.a]
    assert replica["a"].grad_fn is not None
    assert pickle.loads(pickle.dumps(module)).a.tolist() == [1.0, 1.0]
