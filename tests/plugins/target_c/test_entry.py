"""The public entry of a C program: wrong arguments and files are error codes with a text, never an access out of
bounds. The program is called through ctypes."""

import ctypes
import subprocess

import numpy as np
import pytest
from tests.plugins.target_c.programs import write

import tenon as t
from tenon import nn
from tenon.errors import LoweringError
from tenon.export import capture
from tenon.nn import functional as F
from tenon_target_c.target import SOURCES, CTarget

(
    NOT_LOADED,
    NO_FILE,
    BAD_FILE,
    BAD_COUNT,
    BAD_TYPE,
    BAD_SHAPE,
    BAD_DATA,
    BAD_INDEX,
    BAD_NUMBER,
    ZERO_DIVISOR,
) = range(1, 11)
FLOAT32, INT64 = 0, 2


class Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", ctypes.c_long * 8),
    )


def given(array, kind=FLOAT32):
    shape = (ctypes.c_long * 8)(*array.shape)
    return Array(array.ctypes.data, kind, array.ndim, shape)


class Program:
    """A compiled program."""

    def __init__(self, folder):
        library = folder / "model.so"
        sources = [str(folder / s) for s in SOURCES if s in ("model.c", "kernels.c")]
        subprocess.run(
            ["gcc", "-std=c99", "-shared", "-fPIC", "-o", str(library), *sources, "-lm"], check=True
        )
        self.c = ctypes.CDLL(str(library))
        self.c.model_message.restype = ctypes.c_char_p
        self.weights = folder / "weights.bin"

    def load(self, path=None):
        return self.c.model_load(str(path or self.weights).encode())

    def run(self, inputs, outputs, count=None):
        return self.c.model_run(
            (Array * len(inputs))(*inputs),
            count or len(inputs),
            (Array * len(outputs))(*outputs),
            len(outputs),
        )

    @property
    def message(self):
        return self.c.model_message().decode()


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(10, 4), nn.Linear(4, 3)

    def forward(self, words):
        return self.out(self.table(words))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    t.manual_seed(0)
    folder = tmp_path_factory.mktemp("words")
    write(folder, Words(), t.tensor([[1, 2, 3]]))
    return folder


@pytest.fixture
def program(folder, tmp_path):
    return Program(folder)


def test_run_gives_the_outputs_and_no_error(folder):
    program = Program(folder)
    out = np.zeros((1, 3, 3), np.float32)

    assert program.load() == 0
    assert program.run([given(np.array([[4, 0, 9]]), INT64)], [given(out)]) == 0
    assert out.any()


def test_wrong_arguments_are_refused_by_name(folder):
    program = Program(folder)
    words, out = np.array([[1, 2, 3]]), np.zeros((1, 3, 3), np.float32)
    program.load()

    assert program.run([given(words, INT64)] * 2, [given(out)]) == BAD_COUNT
    assert program.message.endswith("; expected 1 and 1, got 2 and 1")
    assert program.run([given(words.astype(np.float32))], [given(out)]) == BAD_TYPE
    assert program.message == (
        "input words: an argument of another type than the model was exported with; "
        "expected int64 [1, 3], got float32 [1, 3]"
    )
    assert program.run([given(words, INT64)], [given(out, 99)]) == BAD_TYPE
    assert program.message.endswith("expected float32 [1, 3, 3], got unknown type 99 [1, 3, 3]")
    assert program.run([given(np.array([[1, 2]]), INT64)], [given(out)]) == BAD_SHAPE
    assert program.message.endswith("expected [1, 3], got [1, 2]")
    assert program.run([given(words[0], INT64)], [given(out)]) == BAD_SHAPE
    long = Array(words.ctypes.data, INT64, 9, (ctypes.c_long * 8)(*[1] * 8))
    assert program.run([long], [given(out)]) == BAD_SHAPE
    assert program.message.endswith("expected [1, 3], got [1, 1, 1, 1, 1, 1, 1, 1, ...]")
    assert program.run([given(words, INT64)], [given(out[:, :2])]) == BAD_SHAPE
    assert "output output0" in program.message
    assert program.run([Array(None, INT64, 2, (ctypes.c_long * 8)(1, 3))], [given(out)]) == BAD_DATA
    assert program.message == "input words: an argument without memory"
    array = (Array * 1)(given(out))
    assert program.c.model_run(None, 1, array, 1) == BAD_DATA
    assert program.message == "an argument without memory; the array of inputs is NULL"
    assert program.c.model_run((Array * 1)(given(words, INT64)), 1, None, 1) == BAD_DATA
    assert program.message == "an argument without memory; the array of outputs is NULL"


def test_messages_of_long_names_fit_into_their_memory(tmp_path):
    name = "x" * 300
    function = eval(f"lambda {name}: {name}.permute(7, 6, 5, 4, 3, 2, 1, 0)")
    write(tmp_path, function, t.zeros((1,) * 8))
    program, most = Program(tmp_path), (1 << 63) - 1
    program.load()

    shape = (ctypes.c_long * 8)(*[most] * 8)
    assert program.run([Array(None, FLOAT32, 8, shape)], [given(np.zeros((1,) * 8, np.float32))]) == BAD_SHAPE
    assert program.message.startswith(f"input {name[:200]}: an argument of another shape")
    assert program.message.endswith(f", got [{', '.join([str(most)] * 8)}]")


@pytest.mark.parametrize("word", [10, -1, 1 << 62, -(1 << 62)])
def test_an_index_out_of_range_is_an_error(folder, word):
    program = Program(folder)
    program.load()

    code = program.run([given(np.array([[1, word, 3]]), INT64)], [given(np.zeros((1, 3, 3), np.float32))])

    assert code == BAD_INDEX
    assert "out of range" in program.message


class Divided(nn.Module):
    def forward(self, x, divisor, places):
        parts = [x // divisor, x % divisor, t.div(x, divisor, rounding_mode="trunc"), t.fmod(x, divisor)]
        return *parts, x.scatter_add(0, places, x), x.index_put((places,), x), x[places[:2], None]


@pytest.fixture(scope="module")
def divided(tmp_path_factory):
    folder = tmp_path_factory.mktemp("divided")
    write(folder, Divided(), t.tensor([7, -7, 7]), t.tensor([2, 2, -2]), t.tensor([0, 2, 1]))
    program = Program(folder)
    program.load()
    return program


def test_integers_are_divided_as_python_does(divided):
    x, divisor, places = np.array([7, -7, -(1 << 63)]), np.array([-2, 2, -1]), np.array([2, 2, -3])
    outputs = [np.zeros(3, np.int64) for _ in range(6)] + [np.zeros((2, 1), np.int64)]

    places[2] = 0
    assert (
        divided.run([given(a, INT64) for a in (x, divisor, places)], [given(o, INT64) for o in outputs]) == 0
    )
    assert outputs[0].tolist() == [-4, -4, -(1 << 63)]
    assert outputs[1].tolist() == [-1, 1, 0]
    assert outputs[2].tolist() == [-3, -3, -(1 << 63)]
    assert outputs[3].tolist() == [1, -1, 0]


@pytest.mark.parametrize(
    ("divisor", "place", "code"),
    [
        (0, 0, ZERO_DIVISOR),
        (1, 3, BAD_INDEX),
        (1, -4, BAD_INDEX),
        (1, 1 << 62, BAD_INDEX),
        (1, -(1 << 63), BAD_INDEX),
    ],
)
def test_a_zero_divisor_and_a_place_out_of_range_are_errors(divided, divisor, place, code):
    x, divisors, places = np.array([7, -7, 7]), np.array([2, divisor, 2]), np.array([0, 1, place])
    outputs = [np.zeros(3, np.int64) for _ in range(6)] + [np.zeros((2, 1), np.int64)]

    given_code = divided.run(
        [given(a, INT64) for a in (x, divisors, places)], [given(o, INT64) for o in outputs]
    )

    assert given_code == code
    assert ("divided by zero" if code == ZERO_DIVISOR else "out of range") in divided.message


def test_random_ops_are_named_all_at_once():
    class Noisy(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.5, training=True) + t.rand_like(x) + t.bernoulli(x.sigmoid())

    graph = capture(nn.Sequential(nn.Dropout(0.5), Noisy()).train(), t.randn(3))
    with pytest.raises(LoweringError, match=r"(?s)dropout_mask \(0 at .*, 1 at .*\); host_draw \(1 at "):
        CTarget().lowered(graph)
    assert CTarget().lowered(capture(nn.Dropout(0.5).eval(), t.randn(3))) is not None


def test_damaged_and_missing_weights_are_refused(folder, tmp_path):
    write(tmp_path / "copy", Words(), t.tensor([[1, 2, 3]]))
    program = Program(tmp_path / "copy")
    out, words = given(np.zeros((1, 3, 3), np.float32)), given(np.array([[1, 2, 3]]), INT64)
    data = bytearray(program.weights.read_bytes())
    damaged = tmp_path / "damaged.bin"

    assert program.run([words], [out]) == NOT_LOADED
    assert program.load(tmp_path / "nothing.bin") == NO_FILE
    assert program.c.model_load(None) == NO_FILE
    assert program.c.model_load_bytes(None, ctypes.c_size_t(len(data))) == BAD_FILE
    for change in (data[:-4], data + b"\0", data[:10], b"", data[:30] + bytes([data[30] ^ 1]) + data[31:]):
        damaged.write_bytes(change)
        assert program.load(damaged) == BAD_FILE
        assert program.run([words], [out]) == NOT_LOADED
    assert program.c.model_load_bytes(bytes(data), ctypes.c_size_t(len(data))) == 0
    assert program.run([words], [out]) == 0


@pytest.mark.slow
def test_a_wrong_test_vector_fails(folder, tmp_path):
    vectors = write(tmp_path, nn.Linear(3, 2), t.randn(4, 3))
    data = bytearray((tmp_path / "vectors.bin").read_bytes())
    data[-4:] = np.float32(vectors.runs[0].outputs[0].flat[-1] + 1e-3).tobytes()
    (tmp_path / "vectors.bin").write_bytes(data)

    done = subprocess.run(["make", "-s", "-C", str(tmp_path)], capture_output=True, text=True, timeout=300)

    assert done.returncode != 0
    assert "1 failures" in done.stdout


def test_training_state_is_saved_and_continued(tmp_path):
    t.manual_seed(0)
    weight = nn.Parameter(t.ones(3))
    optimizer = t.optim.Adam([weight], lr=0.5)

    def step(x):
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    graph = capture(step, t.ones(3), train=True)
    CTarget().write(graph, None, tmp_path)
    program = Program(tmp_path)
    x, loss = given(np.ones(3, np.float32)), np.zeros((), np.float32)
    numbers = (ctypes.c_double * 8).in_dll(program.c, "model_numbers")
    names = [s.name for s in graph.signature.scalars]
    first_step = numbers[names.index(next(n for n in names if "step" in n))]

    program.load()
    assert program.run([x], [given(loss)]) == 0 and loss == 3
    assert numbers[names.index(next(n for n in names if "step" in n))] == first_step + 1
    assert program.c.model_save(str(tmp_path / "after.bin").encode()) == 0
    assert program.run([x], [given(loss)]) == 0 and loss < 3
    after_two = float(loss)
    assert program.load(tmp_path / "after.bin") == 0
    numbers[names.index(next(n for n in names if "lr" in n))] = 0.0
    assert program.run([x], [given(loss)]) == 0 and float(loss) == after_two
    assert program.run([x], [given(loss)]) == 0 and float(loss) == after_two  # the rate was 0


def test_a_number_by_which_python_decided_may_not_change(tmp_path):
    weight = nn.Parameter(t.ones(3))
    optimizer = t.optim.SGD([weight], lr=0.5, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    graph = capture(step, t.ones(3), train=True)
    CTarget().write(CTarget().lowered(graph), None, tmp_path)
    program = Program(tmp_path)
    x, loss = given(np.ones(3, np.float32)), given(np.zeros((), np.float32))
    numbers = (ctypes.c_double * 8).in_dll(program.c, "model_numbers")
    momentum = next(i for i, s in enumerate(graph.signature.scalars) if "momentum" in s.name)

    program.load()
    numbers[momentum] = 0.5
    assert program.run([x], [loss]) == 0
    numbers[momentum] = 0.0
    assert program.run([x], [loss]) == BAD_NUMBER
    assert "model_numbers" in program.message


class Unsupported(nn.Module):
    def forward(self, x):
        return t.fft.fft(x).real + t.linalg.inv(x)


def test_all_missing_ops_are_named_before_anything_is_written(tmp_path):
    graph = capture(nn.Sequential(nn.Linear(3, 3), Unsupported()), t.randn(3, 3))

    with pytest.raises(LoweringError, match=r"(?s)fft.*\(1 at .*inv.*\(1 at "):
        CTarget().write(graph, None, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_dtype_without_c_is_named():
    graph = capture(nn.Sequential(nn.Linear(3, 3).half()), t.randn(2, 3).half())

    with pytest.raises(LoweringError, match=r"matmul of float16 \(in 0 at .*; input input of float16"):
        CTarget().lowered(graph)


def test_guards_are_refused():
    graph = capture(lambda x: x * 2 if x.sum() > 0 else x, t.ones(3), guards=True)

    with pytest.raises(
        LoweringError, match=r"cannot check guards on arrays; Python decided by values at .*test_entry"
    ):
        CTarget().lowered(graph)
