"""Errors of joining, splitting, permuting and creating tensors, and for unsuitable ``out=``, with PyTorch's messages."""

import pytest

import tenon

pytestmark = pytest.mark.together

T = tenon.tensor
ONES = tenon.ones(2, 3)


class Broken:
    """A sequence that has a length but raises for every index."""

    def __len__(self):
        return 2

    def __getitem__(self, place):
        raise TypeError


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: ONES.flip(), TypeError, "missing 1 required positional"),
        (lambda: ONES.flip(0, 1, 1), RuntimeError, "dim 1 appears multiple times"),
        (lambda: tenon.fliplr(T([1])), RuntimeError, "Input must be >= 2-d."),
        (lambda: tenon.flipud(T(1)), RuntimeError, "Input must be >= 1-d."),
        (lambda: tenon.vander(T([1, 2]), N=-1), RuntimeError, "N must be non-negative."),
        (lambda: tenon.block_diag(T(1), T([[[1]]])), RuntimeError, "Input 1 has 3 dimensions"),
        (lambda: tenon.meshgrid(), RuntimeError, "expects a non-empty TensorList"),
        (lambda: tenon.meshgrid(T([1]), T([1.0])), RuntimeError, "to have the same dtype"),
        (lambda: tenon.cat([ONES, ONES[0]]), RuntimeError, "same number of dimensions: got 2 and 1"),
        (lambda: tenon.repeat_interleave(T([[1]])), RuntimeError, "only accept 1D vector"),
        (lambda: tenon.repeat_interleave(T([1.0])), NotImplementedError, "not implemented for 'Float'"),
        (lambda: ONES.repeat_interleave(T([[1]]), 0), RuntimeError, "0-dim or 1-dim tensor"),
        (lambda: tenon.complex(T([1]), T([1])), RuntimeError, "Half, Float or Double tensors but got Long and"),
        (lambda: tenon.polar(T([1.0]), T([1.0]).double()), RuntimeError, "scalar type Float but got .* Double"),
        (lambda: tenon.view_as_complex(T(1.0)), RuntimeError, "one or more dimensions"),
        (lambda: tenon.view_as_complex(ONES.t()[:2].t()[:, :2]), RuntimeError, "stride divisible by 2"),
        (lambda: ONES[:, 0].view(tenon.float64), RuntimeError, r"self.stride\(-1\) must be 1 to view Float as"),
        (lambda: T(1.0).view(tenon.int8), RuntimeError, r"self.dim\(\) cannot be 0"),
        (lambda: ONES.view(tenon.float64), RuntimeError, r"self.size\(-1\) must be divisible by 2"),
        (lambda: ONES[:, 1:].view(tenon.float64), RuntimeError, r"storage_offset\(\) must be divisible by 2"),
        (lambda: T(1).tensor_split(2), RuntimeError, "at least a 1-dimensional tensor, but got a tensor with 0"),
        (lambda: ONES.tensor_split(T(1.5)), RuntimeError, "dtype of long, but got Float"),
        (lambda: T([1]).mH, RuntimeError, r"tensor.mH is only supported on matrices"),
        (lambda: T([1]).adjoint(), RuntimeError, r"tensor.adjoint\(\) is only supported on matrices"),
        (lambda: tenon.empty(()).resize_([8, 8, 2**29, 2**29]), RuntimeError, "overflow"),
        (lambda: tenon.empty(()).resize_([2, 4, 2**29, 2**29]), RuntimeError, "Storage size calculation over"),
        (lambda: tenon.broadcast_shapes((3, -1)), RuntimeError, "negative dimension"),
        (lambda: tenon.broadcast_shapes(1.5), RuntimeError, "should be of type ints"),
        (lambda: tenon.broadcast_shapes((2,), (3,)), RuntimeError, "cannot be broadcast to a single shape"),
        (lambda: tenon.topk(ONES, 1, True), TypeError, "must be int, not bool"),
        (lambda: tenon.empty(0).kthvalue(1), IndexError, "to have non-zero size"),
        (lambda: tenon.empty(0, 3).mode(0), IndexError, "to have non-zero size"),
        (lambda: tenon.empty(5, 0, 0).unique(dim=1), RuntimeError, "more than one, so unique cannot"),
        (lambda: tenon.empty(5, 0, 5).unique(dim=2), RuntimeError, "aren't selected, so unique cannot"),
        (lambda: tenon.add(T([1]), T([1]), alpha=1.5), RuntimeError, "alpha must not be a floating point"),
        (lambda: tenon.addcdiv(T([1]), T([1]), T([1])), RuntimeError, "Integer division with addcdiv"),
        (lambda: ONES.lerp(ONES.double(), 1), RuntimeError, "for `end` but got dtype"),
        (lambda: float(T(1j)), RuntimeError, "type double without overflow"),
        (lambda: tenon.zeros(2, dtype=tenon.int64, requires_grad=True), RuntimeError, "^Only Tensors of floating"),
        (lambda: tenon.tensor(Broken()), ValueError, "could not determine the shape of object type 'Broken'"),
        (lambda: ONES.unsqueeze(0).trace(), RuntimeError, "expected a matrix, but got tensor with dim 3"),
        (lambda: ONES.unsqueeze(0).diag(), RuntimeError, "Supports 1D or 2D tensors"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_work_says_why(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tenon.cat([ONES, ONES], out=tenon.zeros(1, 3).expand(4, 3)), "more than one element"),
        (lambda: tenon.linspace(1, 10, 10, out=tenon.zeros(1).expand(10)), "more than one element"),
        (lambda: tenon.zeros(3, dtype=tenon.float64, out=tenon.zeros(3)), "dtype Double does not match"),
        (lambda: tenon.add(ONES, 1, out=tenon.zeros(2, 3, dtype=tenon.int64)), "result type Float can't be cast"),
        (lambda: tenon.sort(ONES, out=(ONES.double(), T([0]))), "Expected out tensor to have dtype"),
        (lambda: tenon.nonzero(ONES, out=tenon.empty(0)), "scalar type Long"),
        (lambda: tenon.nonzero(ONES, as_tuple=True, out=T([0])), "when as_tuple is True"),
        (lambda: tenon.complex(ONES, ONES, out=ONES.clone()), "scalar type ComplexFloat but got .*'out'"),
    ],
)  # fmt: skip
def test_an_out_that_does_not_fit_is_refused(call, words):
    with pytest.raises(RuntimeError, match=words):
        call()


def test_an_out_over_the_memory_that_is_read_is_refused():
    x = tenon.arange(6.0)

    for call in (
        lambda: tenon.cat([x, x], out=x),
        lambda: tenon.cat([x[:2], x[2:4]], out=x[1:5]),
        lambda: tenon.kthvalue(x, 2, out=(x, T(0))),
        lambda: tenon.index_select(x, 0, T([0]), out=x),
    ):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            call()
    tenon.cat([x[:1], x[2:3]], out=x[4:])
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 2.0]


def test_edges_that_work_as_in_pytorch():
    assert T(5).flip(0).item() == 5
    assert tenon.cat([tenon.empty(0), tenon.empty(0)], dim=1).shape == (0,)
    assert tenon.block_diag().shape == (1, 0)
    assert tenon.vander(T([255], dtype=tenon.uint8), 3).tolist() == [[65025, 255, 1]]
    assert tenon.zeros(1, dtype=float).dtype is tenon.float64
    assert tenon.full((1,), 1.5).dtype is tenon.float32
    assert (float(T(2 + 0j)), int(T([3 + 0j]))) == (2.0, 3)
    assert (ONES.sparse_dim(), ONES.dense_dim()) == (0, 2)
    assert tenon.swapaxes(ONES, axis0=0, axis1=1).shape == (3, 2)
    overlapping = tenon.zeros(1, 3).expand(2, 3)
    assert overlapping.fill_(4).tolist() == [[4.0] * 3] * 2
    nhwc = tenon.zeros(2, 3, 4, 4).contiguous(memory_format=tenon.channels_last)
    assert nhwc.flip(3).stride() == nhwc.stride()
    flat = tenon.zeros(96).resize_as_(nhwc, memory_format=tenon.preserve_format)
    assert flat.stride() == nhwc.stride()
