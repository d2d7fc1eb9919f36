"""Padding and packing of sequences of different lengths, against PyTorch."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon.nn.utils import rnn

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]


def sequences(*lengths, tail=(2,), dtype="float32"):
    draw = np.random.default_rng(0)
    return [draw.standard_normal((n, *tail)).astype(dtype) for n in lengths]


def equal(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tail", [(), (2,), (2, 3)], ids=str)
def test_pad_sequence_pads_as_torch(batch_first, side, tail):
    given = sequences(2, 4, 1, tail=tail)

    made = [
        lib.nn.utils.rnn.pad_sequence([lib.from_numpy(s) for s in given], batch_first, -1.0, side)
        for lib in (tenon, torch)
    ]

    equal(made[:1], made[1:])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("lengths", [[4, 3, 1], [2, 4, 3], [3, 3, 3], [5, 5, 5]], ids=str)
@pytest.mark.parametrize("tail", [(), (2,), (2, 3)], ids=str)
def test_padded_sequences_pack_as_in_torch_and_unpack_again(batch_first, lengths, tail):
    padded = np.random.default_rng(0).standard_normal((3, 5, *tail) if batch_first else (5, 3, *tail))
    found = []
    for lib in (tenon, torch):
        x = lib.from_numpy(padded.copy()).requires_grad_()
        packed = lib.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        again, counts = lib.nn.utils.rnn.pad_packed_sequence(packed, batch_first, 7.0, 6)
        (again * lib.arange(again.numel()).reshape(again.shape)).sum().backward()
        found.append([*packed, again, counts, x.grad])

    equal(*found)
    assert found[0][-2].tolist() == lengths


def test_sequences_pack_and_unpack():
    given = [tenon.from_numpy(s) for s in sequences(2, 4, 3)]

    packed = rnn.pack_sequence(given, enforce_sorted=False)

    assert packed.batch_sizes.tolist() == [3, 3, 2, 1]
    equal(rnn.unpack_sequence(packed), given)
    padded, lengths = rnn.pad_packed_sequence(packed)
    equal(rnn.unpad_sequence(padded, lengths), given)


def test_integers_pack_too():
    packed = rnn.pack_sequence([tenon.tensor([1, 2, 3]), tenon.tensor([4])])

    assert packed.data.tolist() == [1, 4, 2, 3]


def test_packed_sequence_converts_prints_and_pickles_as_torchs():
    given = sequences(3, 2)
    mine, theirs = (
        lib.nn.utils.rnn.pack_sequence([lib.from_numpy(s) for s in given], enforce_sorted=False)
        for lib in (tenon, torch)
    )

    assert repr(mine) == repr(theirs)
    assert mine.to(tenon.float32) is mine
    assert mine.cpu() is mine and not mine.is_cuda
    for name in ("double", "float", "half", "long", "int", "short", "char", "byte"):
        assert str(getattr(mine, name)().data.dtype) == str(getattr(theirs, name)().data.dtype)
    again = pickle.loads(pickle.dumps(mine))
    assert isinstance(again, rnn.PackedSequence)
    equal(again, mine)
    pair = rnn.PackedSequence((mine.data, mine.batch_sizes))
    assert pair.data is mine.data and pair.unsorted_indices is None


REFUSED = {
    "unsorted": lambda T: T.nn.utils.rnn.pack_padded_sequence(T.randn(3, 2, 3), [2, 3]),
    "empty sequence": lambda T: T.nn.utils.rnn.pack_padded_sequence(T.randn(3, 2, 3), [3, 0]),
    "too many lengths": lambda T: T.nn.utils.rnn.pack_padded_sequence(T.randn(3, 2, 3), [3, 2, 1]),
    "no steps": lambda T: T.nn.utils.rnn.pack_padded_sequence(T.randn(0, 2, 3), [3, 2]),
    "no sequences": lambda T: T.nn.utils.rnn.pack_sequence([]),
    "nothing to pad": lambda T: T.nn.utils.rnn.pad_sequence([]),
    "no iterable": lambda T: T.nn.utils.rnn.pad_sequence(3),
    "side": lambda T: T.nn.utils.rnn.pad_sequence([T.randn(2)], padding_side="up"),
    "total_length": lambda T: T.nn.utils.rnn.pad_packed_sequence(
        T.nn.utils.rnn.pack_sequence([T.randn(3)]), total_length=2
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_torch_refuses_is_refused_in_its_words(case):
    with pytest.raises(Exception) as theirs:
        REFUSED[case](torch)
    with pytest.raises(RuntimeError) as mine:
        REFUSED[case](tenon)

    assert str(mine.value).startswith(str(theirs.value).replace("<class 'int'>", "").rstrip(". "))


def test_lengths_beyond_the_input_are_refused():
    with pytest.raises(ValueError, match=r"lengths \[4, 2\] reach beyond the 3 steps"):
        rnn.pack_padded_sequence(tenon.randn(3, 2, 3), [4, 2])


def test_code_of_the_guide_runs():
    guide = Path(__file__).resolve().parents[2] / "docs" / "guide" / "sequences.md"
    names = {}

    for block in re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.M | re.S):
        exec(block, names)

    assert names["first"].shape == (5, 64)
