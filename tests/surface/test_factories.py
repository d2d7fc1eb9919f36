"""Factories, ``out=``, limits of dtypes and settings, against torch."""

import warnings

import numpy as np
import pytest

import tenon
from tenon.errors import DTypeError, TenonError, UnsupportedError

pytestmark = pytest.mark.together

oracle = pytest.mark.oracle


@oracle
@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("zeros", (2, 3), {}),
        ("zeros", ((2, 3),), {"dtype": "dtype:int32"}),
        ("zeros", (), {"size": (2,)}),
        ("zeros", (0, 2), {}),
        ("zeros", (-1,), {}),
        ("ones", (2,), {"dtype": "dtype:bool"}),
        ("full", ((2, 3), 7), {}),
        ("full", ((2,), 1.5), {}),
        ("full", ((2,), True), {}),
        ("full", ((2,), 1), {"dtype": "dtype:float16"}),
        ("arange", (5,), {}),
        ("arange", (1, 5), {}),
        ("arange", (1, 2.5, 0.5), {}),
        ("arange", (5, 1, -2), {}),
        ("arange", (5,), {"dtype": "dtype:float32"}),
        ("arange", (0.1, 0.9, 0.1), {"dtype": "dtype:float64"}),
        ("arange", (1, 5, 0), {}),
        ("arange", (5, 1), {}),
        ("arange", (), {"start": 1, "end": 4}),
        ("arange", (), {"end": 4}),
        ("arange", (5, None), {}),
        ("arange", (None, 5), {}),
        ("arange", (), {}),
        ("linspace", (0, 1, 5), {}),
        ("linspace", (-3, 10), {"steps": 7}),
        ("linspace", (0, 1, 1), {}),
        ("linspace", (3, 1, 0), {}),
        ("linspace", (0, 1, -1), {}),
        ("logspace", (0, 2, 5), {}),
        ("logspace", (0, 2, 5), {"base": 2}),
        ("eye", (3,), {}),
        ("eye", (2, 4), {"dtype": "dtype:int64"}),
        ("eye", (-1,), {}),
        ("tensor", ([1, 2],), {}),
        ("tensor", ([[1.0, 2], [3, 4]],), {}),
        ("tensor", ([True, False],), {}),
        ("tensor", (3,), {}),
        ("tensor", (2.5,), {}),
        ("tensor", ([],), {}),
        ("tensor", ([[]],), {}),
        ("tensor", (1 + 2j,), {}),
        ("tensor", ([1, 2.5],), {"dtype": "dtype:int64"}),
        ("tensor", ([1, 2],), {"dtype": "dtype:bfloat16"}),
        ("tensor", ([[1, 2], [3]],), {}),
        ("tensor", ("abc",), {}),
        ("scalar_tensor", (3,), {}),
        ("zeros_like", ("f:2,3",), {}),
        ("ones_like", ("i:2,3",), {}),
        ("ones_like", ("i:2,3",), {"dtype": "dtype:float32"}),
        ("full_like", ("f:2,3", 2.5), {}),
        ("full_like", ("i:2,3", 2), {}),
        ("tril_indices", (3, 3), {}),
        ("triu_indices", (3, 4, -1), {}),
        ("hann_window", (6,), {}),
        ("hann_window", (6, False), {}),
        ("hamming_window", (7,), {"dtype": "dtype:float64"}),
        ("blackman_window", (6,), {}),
        ("bartlett_window", (6,), {}),
        ("bartlett_window", (7, False), {}),
        ("hann_window", (1,), {}),
        ("asarray", ([1, 2],), {}),
        ("asarray", ("f:3",), {"dtype": "dtype:float32", "requires_grad": False}),
        ("result_type", ("i:2", 1.5), {}),
        ("result_type", ("f:2", "i:2"), {}),
        ("promote_types", ("dtype:int64", "dtype:float16"), {}),
        ("can_cast", ("dtype:float32", "dtype:int64"), {}),
        ("numel", ("f:2,3",), {}),
        ("is_tensor", ("f:2,3",), {}),
        ("is_tensor", (3,), {}),
        ("is_floating_point", ("i:2",), {}),
        ("is_complex", ("c:2",), {}),
        ("is_nonzero", ("f:1",), {}),
        ("is_nonzero", ("f:2",), {}),
        ("typename", ("f:2",), {}),
        ("typename", (3,), {}),
    ],
    ids=str,
)
def test_factories_are_torchs(compare, name, args, kwargs):
    compare(name, args, kwargs, grad=False)


@oracle
def test_results_that_are_dtypes_print_alike():
    torch = pytest.importorskip("torch")

    for lib in (tenon, torch):
        assert str(lib.result_type(lib.ones(2, dtype=lib.int8), 1.5)) == "torch.float32"
    assert str(tenon.promote_types(tenon.uint8, tenon.int8)) == str(
        torch.promote_types(torch.uint8, torch.int8)
    )


@oracle
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_finfo_is_torchs(dtype):
    torch = pytest.importorskip("torch")
    ours, theirs = tenon.finfo(getattr(tenon, dtype)), torch.finfo(getattr(torch, dtype))

    for name in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert repr(ours) == repr(theirs)


@oracle
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_iinfo_is_torchs(dtype):
    torch = pytest.importorskip("torch")
    ours, theirs = tenon.iinfo(getattr(tenon, dtype)), torch.iinfo(getattr(torch, dtype))

    assert (ours.bits, ours.min, ours.max, ours.dtype) == (theirs.bits, theirs.min, theirs.max, theirs.dtype)
    assert repr(ours) == repr(theirs)


def test_finfo_of_the_default_dtype_needs_no_argument():
    assert tenon.finfo().dtype == "float32"
    assert tenon.finfo() == tenon.finfo(tenon.float32)


def test_limits_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match=r"Use torch.iinfo to handle 'int64'"):
        tenon.finfo(tenon.int64)
    with pytest.raises(TypeError, match="requires an integer input type"):
        tenon.iinfo(tenon.float32)


# --- out= ---


@oracle
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("exp", ("f:3",)),
        ("add", ("f:3", "f:3")),
        ("matmul", ("f:3,2", "f:2,4")),
        ("sum", ("f:3,2", 0)),
        ("cat", (["f:2", "f:1"],)),
        ("stack", (["f:2", "f:2"],)),
        ("where", ("b:3", "f:3", "f:3")),
        ("clamp", ("f:3", 0, 1)),
        ("cumsum", ("f:3", 0)),
        ("tensordot", ("f:2,3", "f:3,2", 1)),
        ("linalg.inv", ("d:3,3",)),
    ],
    ids=str,
)
def test_out_receives_the_result(written, name, args):
    ours, theirs = written(name, args)

    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_out_of_several_results_takes_a_tuple():
    values, indices = tenon.empty(2), tenon.empty(2, dtype=tenon.int64)

    result = tenon.max(tenon.tensor([[1.0, 3.0], [5.0, 2.0]]), 1, out=(values, indices))

    assert result.values is values and result.indices is indices
    assert values.tolist() == [3, 5] and indices.tolist() == [1, 0]


def test_out_refuses_a_dtype_that_cannot_hold_the_result():
    with pytest.raises(TenonError, match="result type"):
        tenon.exp(tenon.ones(2), out=tenon.empty(2, dtype=tenon.int64))


def test_functions_that_keep_the_dtype_want_out_to_have_it():
    x = tenon.tensor([-1.5, 2.5])
    for name, args in (("neg", ()), ("floor", ()), ("abs", ()), ("round", ()), ("sign", ()), ("clamp", (0,))):
        with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
            getattr(tenon, name)(x, *args, out=tenon.empty(2, dtype=tenon.float64))
    assert tenon.exp(x, out=tenon.empty(2, dtype=tenon.float64)).dtype == tenon.float64
    assert tenon.abs(x + 1j, out=tenon.empty(2, dtype=tenon.float64)).dtype == tenon.float64


def test_out_refuses_to_lose_a_gradient():
    with pytest.raises(TenonError, match="don't support automatic differentiation"):
        tenon.exp(tenon.ones(2, requires_grad=True), out=tenon.empty(2))


# --- settings ---


@pytest.fixture
def threads():
    before = tenon.get_num_threads()
    yield before
    tenon.set_num_threads(before)


def test_the_number_of_threads_is_the_blas_librarys_own(threads):
    try:
        tenon.set_num_threads(1)
    except UnsupportedError:
        pytest.skip("NumPy's BLAS is not an OpenBLAS on Linux")

    assert tenon.get_num_threads() == 1
    with pytest.raises(TenonError, match="positive integer, got 0"):
        tenon.set_num_threads(0)
    with pytest.raises(TypeError, match="expects an int"):
        tenon.set_num_threads(1.5)


def test_deterministic_algorithms_are_remembered():
    assert not tenon.are_deterministic_algorithms_enabled()

    tenon.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert tenon.are_deterministic_algorithms_enabled()
        assert tenon.is_deterministic_algorithms_warn_only_enabled()
    finally:
        tenon.use_deterministic_algorithms(False)

    assert not tenon.is_deterministic_algorithms_warn_only_enabled()


def test_matmul_precision_is_checked_and_remembered():
    tenon.set_float32_matmul_precision("high")
    try:
        assert tenon.get_float32_matmul_precision() == "high"
        with pytest.raises(TenonError, match="'fast' is not one of"):
            tenon.set_float32_matmul_precision("fast")
    finally:
        tenon.set_float32_matmul_precision("highest")


def test_flushing_denormals_is_honestly_refused():
    assert tenon.set_flush_denormal(True) is False


def test_buffers_and_dlpack_share_memory():
    array = np.arange(3.0)

    assert tenon.from_dlpack(array).data_ptr() == array.ctypes.data
    assert tenon.frombuffer(bytearray(array.tobytes()), dtype=tenon.float64).tolist() == [0, 1, 2]


def test_asarray_shares_copies_or_refuses_as_asked():
    array = np.arange(3.0)

    assert tenon.asarray(array).data_ptr() == array.ctypes.data
    assert tenon.asarray(array, copy=True).data_ptr() != array.ctypes.data
    with pytest.raises(ValueError, match="can't alias"):
        tenon.asarray([1.0], copy=False)


def test_complex_ends_and_ends_that_are_not_numbers():
    assert tenon.linspace(0, 1 + 1j, 3).tolist() == [0, 0.5 + 0.5j, 1 + 1j]
    assert tenon.logspace(0, 0j, 2).dtype is tenon.complex64
    with pytest.raises(RuntimeError, match="got start with 1 dimension"):
        tenon.linspace(tenon.tensor([0.0]), 1, 3)
    with pytest.raises(RuntimeError, match="expects floating point dtypes"):
        tenon.hann_window(3, dtype=tenon.int64)


def test_long_windows_are_cosines_rounded_once():
    angles = np.arange(9001) * (2 * np.pi / 9000)

    for made, low in ((tenon.hann_window(9001, False), 0.5), (tenon.hamming_window(9001, False), 0.54)):
        np.testing.assert_allclose(made.numpy(), low - (1 - low) * np.cos(angles), rtol=0, atol=3.1e-8)


@pytest.mark.parametrize("offset", [-4, -1, 0, 2, 6])
def test_places_of_triangles_are_numpys(offset):
    for rows, columns in ((3, 5), (5, 3), (0, 2), (4, 4)):
        for mine, theirs in ((tenon.tril_indices, np.tril_indices), (tenon.triu_indices, np.triu_indices)):
            np.testing.assert_array_equal(mine(rows, columns, offset).numpy(), theirs(rows, offset, columns))


def test_randint_starts_at_0_where_only_the_end_is_named():
    for made, low in (
        (tenon.randint(high=3, size=(64,)), 0),
        (tenon.randint(3, size=(64,)), 0),
        (tenon.randint(low=1, high=3, size=(64,)), 1),
    ):
        assert (made.min().item(), made.max().item()) == (low, 2)
    with pytest.raises(TypeError, match="high"):
        tenon.randint(size=(3,))


def test_out_decides_the_dtype_where_none_is_asked_for_and_numbers_in_a_row_keep_its_shape():
    for made in (
        tenon.full((3,), 1.5, out=tenon.empty(3, dtype=tenon.int64)),
        tenon.ones(3, out=tenon.empty(0, dtype=tenon.int64)),
    ):
        assert made.dtype == tenon.int64 and made.tolist() == [1, 1, 1]
    assert tenon.eye(2, out=tenon.empty(0, dtype=tenon.bool)).tolist() == [[True, False], [False, True]]
    with pytest.raises(DTypeError, match="does not match dtype of out"):
        tenon.rand(2, dtype=tenon.float32, out=tenon.empty(2, dtype=tenon.float64))
    tenon.manual_seed(3)
    drawn = tenon.randn(4, dtype=tenon.complex64)
    tenon.manual_seed(3)
    assert tenon.equal(tenon.randn(4, out=tenon.empty(0, dtype=tenon.complex64)), drawn)

    for make in (tenon.arange, tenon.range):
        whole = tenon.full((2, 3), 9)
        with warnings.catch_warnings(action="ignore"):
            make(0, 4 if make is tenon.arange else 3, out=whole[:, 1:])
        assert whole.tolist() == [[9, 0, 1], [9, 2, 3]]
    whole = tenon.full((2, 3), 9)
    tenon.linspace(0, 6, 4, out=whole[:, 1:])
    assert whole.tolist() == [[9, 0, 2], [9, 4, 6]]
    tenon.logspace(0, 3, 4, base=2, out=whole[:, 1:])
    assert whole.tolist() == [[9, 1, 2], [9, 4, 8]]


def test_ends_of_complex_rows_do_not_lose_their_imaginary_part():
    for make in (tenon.linspace, tenon.logspace):
        with pytest.raises(RuntimeError, match=r"space\(\): inferred dtype"):
            make(0, 1j, 5, dtype=tenon.float32)
        assert make(0, 1j, 5, dtype=tenon.complex128).dtype == tenon.complex128


def test_asarray_reads_buffers_and_capsules_in_place():
    memory = bytearray(np.arange(4, dtype=np.int16).tobytes())
    shown = tenon.asarray(memory, dtype=tenon.int16, copy=False)
    shown[0] = 7
    assert memory[0] == 7 and tenon.asarray(memory, dtype=tenon.int16, copy=True).tolist() == [7, 1, 2, 3]

    x = tenon.arange(3.0)
    taken = tenon.asarray(tenon.to_dlpack(x), requires_grad=True)
    assert taken.data_ptr() == x.data_ptr() and taken.requires_grad and tenon.asarray(x) is x
    for wrong, options, message in (
        (x, {"dtype": tenon.float64}, "dtype 'Float' into dtype 'Double'"),
        (x, {"device": "meta"}, "from device 'cpu' to 'meta'"),
        ([1.0], {}, "arbitrary sequence"),
        (b"1234", {"dtype": tenon.uint8}, "arbitrary sequence"),
    ):
        with pytest.raises(ValueError, match=message):
            tenon.asarray(wrong, copy=False, **options)


def test_frombuffer_says_which_part_it_cannot_read():
    x = np.ones(3, np.float32)
    assert tenon.frombuffer(x, dtype=tenon.float32, count=2, offset=4).tolist() == [1, 1]
    assert tenon.frombuffer(bytearray(9), dtype=tenon.float32, count=1, offset=3).tolist() == [0]
    for given, options, message in (
        (np.array([]), {}, r"both buffer length \(0\) and count"),
        (x, {"count": 0}, r"both buffer length \(12\) and count \(0\)"),
        (x, {"offset": -4}, r"offset \(-4 bytes\)"),
        (x, {"offset": 12}, r"offset \(12 bytes\)"),
        (x, {"offset": 3}, r"buffer length \(9 bytes\) after offset \(3 bytes\)"),
        (x, {"count": 3, "offset": 4}, r"requested buffer length \(3 \* 4 bytes\)"),
        ([1], {}, "does not implement Python buffer protocol"),
    ):
        with pytest.raises(ValueError, match=message):
            tenon.frombuffer(given, dtype=tenon.float32, **options)
    with pytest.warns(UserWarning, match="not writable"):
        assert tenon.frombuffer(b"ab", dtype=tenon.uint8).tolist() == [97, 98]


def test_numbers_of_numpy_in_a_list_bring_their_dtype_and_tensors_of_one_element_count_as_numbers():
    one, many = np.float32(1), np.arange(2.0)
    for data, dtype in (
        ([one, 0.5], tenon.float32), ([0.5, np.float64(1)], tenon.float64), ([1, np.float16(2)], tenon.float16),
        ([1, np.uint8(1)], tenon.int64), ([True, np.int8(2)], tenon.int8), ([[0.5, 1], [2, np.float64(3)]], tenon.float64),
        ([many, [1, 2]], tenon.float64), ([1j, one], tenon.complex64), ([1, 2.0], tenon.float32),
    ):  # fmt: skip
        assert tenon.tensor(data).dtype == dtype
    first = tenon.tensor([1.5])
    for data in ([first, tenon.tensor([[2.5]])], [first, 2.5], [1.5, tenon.tensor(2.5)]):
        assert tenon.tensor(data).tolist() == [1.5, 2.5]


def test_data_that_cannot_be_a_tensor_is_refused_by_name():
    itself = [0]
    itself += [itself]
    for data, error, message in (
        ([0, "torch"], TypeError, "invalid data type 'str'"),
        ([1, {}], RuntimeError, "Could not infer dtype of dict"),
        ([[1, 2], itself], TypeError, "self-referential lists are incompatible"),
    ):
        with pytest.raises(error, match=message):
            tenon.tensor(data)
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        tenon.empty(1 << 40, 1 << 40)
    with pytest.raises(RuntimeError, match=r"Tensor\(tensor, device=device\) is not supported"):
        tenon.Tensor(tenon.ones(1), device="cpu")
    for window in (tenon.bartlett_window, tenon.hann_window, tenon.kaiser_window):
        with pytest.raises(RuntimeError, match="floating point"):
            window(3, dtype=tenon.int64, layout=tenon.strided)
    with pytest.raises(RuntimeError, match="n cannot be greater than 255"):
        tenon.randperm(257, out=tenon.empty(0, dtype=tenon.uint8))


def test_bfloat16_goes_through_dlpack_with_its_memory():
    x = tenon.arange(6, dtype=tenon.bfloat16).reshape(2, 3)
    taken = tenon.from_dlpack(tenon.to_dlpack(x.t()))
    assert taken.dtype == tenon.bfloat16 and taken.data_ptr() == x.data_ptr() and tenon.equal(taken, x.t())

    class Giver:  # which speaks DLPack and is not a tenon tensor
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    shown = tenon.from_dlpack(Giver())
    shown[0, 0] = 9
    assert shown.dtype == tenon.bfloat16 and x[0, 0].item() == 9
    assert tenon.asarray(tenon.to_dlpack(x), copy=True).tolist() == x.tolist()


def test_a_result_that_resizes_out_warns_but_where_out_alone_says_the_shape():
    x = tenon.ones(2, 3)

    for function in (tenon.add, tenon.normal, tenon.maximum):
        out = tenon.zeros(5)
        with pytest.warns(UserWarning, match=r"was resized since it had shape \[5\]"):
            function(x, x, out=out)
        assert out.shape == (2, 3)
    for quiet in (tenon.zeros(2, 3, out=tenon.zeros(5)), tenon.bernoulli(x, out=tenon.zeros(7))):
        assert quiet.shape == (2, 3)
    assert tenon.add(x, x, out=tenon.zeros(0)).shape == (2, 3)


def test_the_first_size_is_not_a_bool():
    makers = [
        lambda: tenon.empty(True),
        lambda: tenon.zeros((True, 2)),
        lambda: tenon.rand(size=(True, 2)),
        lambda: tenon.nn.Linear(2, True),
    ]
    for make in makers:
        with pytest.raises(TypeError, match="must be tuple of ints, but found element of type bool at pos 0"):
            make()
    assert tenon.ones(2, True).shape == (2, 1)  # PyTorch looks at the first one only
