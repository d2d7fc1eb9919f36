"""torch's old tensor types, and the arguments of ``to``."""

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


def test_type_converts_to_what_a_name_or_a_class_says():
    x = tenon.zeros(1, dtype=tenon.int8)

    assert x.type("torch.DoubleTensor").dtype is tenon.float64
    assert x.type(tenon.Tensor).dtype is x.type("torch.Tensor").dtype is tenon.float32
    with pytest.raises(ValueError, match="invalid type"):
        x.type("torch.NoTensor")
    with pytest.raises(TypeError, match="must be a type, str, or dtype"):
        x.type(3)


def test_types_of_the_gpu_are_others():
    assert not isinstance(tenon.zeros(1), tenon.cuda.FloatTensor)
    assert repr(tenon.cuda.FloatTensor) == "<class 'torch.cuda.FloatTensor'>"
    if not tenon.cuda.is_available():
        with pytest.raises(TypeError, match=r"torch\.cuda\.FloatTensor not available"):
            tenon.set_default_tensor_type(tenon.cuda.FloatTensor)


def test_no_class_derives_from_a_tensor_type():
    with pytest.raises(TypeError, match=r"'torch\.FloatTensor' is not an acceptable base type"):
        type("Mine", (tenon.FloatTensor,), {})


def test_new_makes_what_the_constructor_of_the_type_makes():
    x = tenon.zeros(2)

    assert x.new(size=(3, 4)).shape == tenon.Tensor(size=(3, 4)).shape == (3, 4) and x.new(()).shape == (0,)
    for wrong in ("a", 2.5):
        with pytest.raises(TypeError, match=r"new\(\): "):
            x.new(wrong)


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
