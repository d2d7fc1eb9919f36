"""``from_numpy`` of a view: the tensor reaches, shares and saves the view's own extent, and nothing outside it."""

import copy
import io
import mmap

import numpy as np
import pytest

import tenon
from tenon.errors import TenonError

pytestmark = pytest.mark.together

SECRET = 7.25


@pytest.fixture
def large():
    array = np.full(1000, SECRET, np.float32)
    array[400:420] = np.arange(20)
    return array


def views_of(large):
    part = large[400:420]
    return {
        "slice": part[2:6],
        "rows": part.reshape(4, 5)[1:3],
        "columns": part.reshape(4, 5)[:, 1:3],
        "transposed": part.reshape(4, 5)[1:3].T,
        "steps": part[1::3],
        "one element": part[3:4],
        "number": part.reshape(4, 5)[2, 3, ...],
        "bytes": part[2:6].view(np.uint8),
        "broadcast": np.broadcast_to(part[2:6], (3, 4)),
        "through a buffer": np.frombuffer(memoryview(part[2:6]), np.float32),
        "through as_strided": np.lib.stride_tricks.as_strided(part[2:], (2, 2), (8, 4)),
    }


CASES = list(views_of(np.zeros(1000, np.float32)))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("case", CASES)
def test_the_storage_is_that_of_torch(large, case):
    torch = pytest.importorskip("torch")
    view = views_of(large)[case]

    ours, theirs = tenon.from_numpy(view), torch.from_numpy(view)

    assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()
    assert ours.storage_offset() == theirs.storage_offset() == 0
    assert ours.stride() == theirs.stride() and ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("case", CASES)
def test_no_neighbour_is_saved(large, case):
    view = views_of(large)[case]
    saved = io.BytesIO()
    tenon.save({"x": tenon.from_numpy(view)}, saved)

    assert np.float32(SECRET).tobytes() not in saved.getvalue()
    assert tenon.load(io.BytesIO(saved.getvalue()))["x"].tolist() == view.tolist()


@pytest.mark.parametrize("case", CASES)
def test_as_strided_cannot_leave_the_view(large, case):
    x = tenon.from_numpy(views_of(large)[case])
    count = x.untyped_storage().nbytes() // x.element_size()

    assert SECRET not in x.as_strided((count,), (1,)).tolist()
    with pytest.raises(TenonError, match="out of bounds for storage"):
        x.as_strided((count + 1,), (1,))
    with pytest.raises((TenonError, ValueError)):
        x.as_strided((1,), (1,), -1)


@pytest.mark.parametrize("case", [case for case in CASES if case != "broadcast"])
def test_both_see_what_is_written(large, case):
    view = views_of(large)[case]
    x = tenon.from_numpy(view)

    x.fill_(3)
    assert (view == 3).all()
    view[...] = 5
    assert (x == 5).all()
    assert np.shares_memory(x.numpy(), large)


def test_the_array_lives_as_long_as_the_tensor(large):
    x = tenon.from_numpy(large[400:420][2:6])
    del large

    assert x.tolist() == [2, 3, 4, 5]


def test_a_field_whose_strides_are_no_multiples_of_its_elements_is_refused():
    records = np.zeros(1000, [("number", np.float32), ("secret", "S5")])

    with pytest.raises(ValueError, match="strides not a multiple of the element byte size"):
        tenon.from_numpy(records["number"][500:503])
    assert tenon.tensor(records["number"][500:503]).untyped_storage().nbytes() == 12


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_the_storage_of_a_matrix_is_a_vector():
    matrix = np.matrix([[1, 2], [3, 4]], np.float32)
    x = tenon.from_numpy(matrix)

    assert x.untyped_storage().tolist() == list(matrix.tobytes())
    x[0, 0] = 7
    assert matrix[0, 0] == 7


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_an_empty_view_has_an_empty_storage(large, shape):
    x = tenon.from_numpy(np.ndarray(shape, np.float32, large))

    assert x.untyped_storage().nbytes() == 0 and tuple(x.shape) == shape


def test_views_of_shared_memory_are_shared():
    memory = np.frombuffer(mmap.mmap(-1, 4096), np.float32)

    assert tenon.from_numpy(memory[5:9]).is_shared()
    assert not tenon.from_numpy(np.zeros(9, np.float32)[2:4]).is_shared()


def test_a_view_that_cannot_be_written_stays_so(large):
    view = large[400:420][2:6]
    view.flags.writeable = False

    assert not tenon.from_numpy(view).raw.flags.writeable


GAPS = {
    "columns": np.s_[3:6, 10:14],
    "steps": np.s_[0, 3:40:4],
    "steps in both": np.s_[2:9:3, 5:30:7],
    "transposed": np.s_[3:6:2, 10:14],
    "repeated": np.s_[0, 3:40:4],
    "windows": np.s_[0, 3:40:4],
}


def view_with_gaps(case):
    view = np.full((20, 50), SECRET, np.float32)[GAPS[case]]
    view[...] = np.arange(view.size).reshape(view.shape)
    if case == "repeated":  # more elements than the memory between the first and the last has numbers
        return np.lib.stride_tricks.as_strided(view, (90, view.size), (0, *view.strides))
    if case == "windows":
        return np.lib.stride_tricks.sliding_window_view(view, 6, writeable=True)
    return view.T if case == "transposed" else view


def saved_in(form, value, folder):
    if form == "safetensors":
        tenon.save(value, folder / "x.safetensors")
        return (folder / "x.safetensors").read_bytes()
    saved = io.BytesIO()
    tenon.save(value, saved, _use_new_zipfile_serialization=form != "legacy")
    return saved.getvalue()


@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors"])
@pytest.mark.parametrize("case", list(GAPS))
def test_what_lies_between_the_elements_of_a_view_is_not_saved(tmp_path, case, form):
    view = view_with_gaps(case)
    x = tenon.from_numpy(view)
    made = {"x": x, "part": x[..., 1:], "parameter": tenon.nn.Parameter(x), "copy": copy.deepcopy(x)}
    made |= {"copies": copy.deepcopy([x, x[1:]]), "same": x.detach()}

    for name, value in made.items():
        written = saved_in(form, {"x": value}, tmp_path)

        assert np.float32(SECRET).tobytes() not in written, name
    found = tenon.load(io.BytesIO(saved_in("zip", made, tmp_path)))
    assert found["x"].tolist() == found["same"].tolist() == found["copy"].tolist() == view.tolist()
    assert found["part"].tolist() == view[..., 1:].tolist()
    assert found["copies"][1].tolist() == view[1:].tolist()
    assert found["x"].stride() == x.stride() and found["copy"].stride() == x.stride()
    found["x"][0, ...] = 5
    assert found["same"].tolist() == found["x"].tolist()


def test_views_of_one_array_that_lie_between_each_other_are_saved_as_they_are():
    array = np.full(40, SECRET, np.float32)
    array[::4], array[1::4] = 1, 2
    first, second = tenon.from_numpy(array[::4]), tenon.from_numpy(array[1:30:4])

    written = saved_in("zip", [first, second], None)
    ours = tenon.load(io.BytesIO(written))

    assert np.float32(SECRET).tobytes() not in written
    assert [each.tolist() for each in ours] == [[1.0] * 10, [2.0] * 8]


def test_a_tensor_beside_the_whole_array_keeps_the_whole():
    array = np.arange(12, dtype=np.float32)
    whole, part = tenon.from_numpy(array), tenon.from_numpy(array[1::3])

    found = tenon.load(io.BytesIO(saved_in("zip", [part, whole], None)))

    assert [each.tolist() for each in found] == [[1.0, 4.0, 7.0, 10.0], list(range(12))]


def test_as_strided_over_the_gaps_is_saved_and_copied_as_it_is():
    x = tenon.from_numpy(np.arange(12, dtype=np.float32)[1::5])
    over = x.as_strided((6,), (1,))

    found = tenon.load(io.BytesIO(saved_in("zip", [x, over], None)))

    assert found[1].tolist() == over.tolist() == [1, 2, 3, 4, 5, 6]
    assert copy.deepcopy(over).tolist() == copy.deepcopy([x, over])[1].tolist() == over.tolist()
