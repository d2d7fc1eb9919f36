"""``torch.testing._comparison``: kinds of pairs, and suites that derive their own."""

import pytest

import tenon
from tenon.testing import _comparison as pairs


class Loose(pairs.NumberPair):
    """Numbers, and tensors of one element."""

    def _process_inputs(self, actual, expected, *, id):
        return [each.item() if isinstance(each, tenon.Tensor) else each for each in (actual, expected)]


class Text(pairs.Pair):
    def __init__(self, actual, expected, **options):
        self._check_inputs_isinstance(actual, expected, cls=str)
        super().__init__(actual, expected, **options)

    def compare(self):
        if self.actual != self.expected:
            self._fail(AssertionError, f"{self.actual} is not {self.expected}")


def test_own_kinds_of_pairs_are_tried_in_order_and_all_differences_are_told():
    kinds = (pairs.NonePair, pairs.BooleanPair, Text, Loose)

    found = pairs.not_close_error_metas(
        {"a": ["x", tenon.tensor(1.0)], "b": None, 3: True},
        {"a": ["y", 2.0], "b": None, 3: False},
        pair_types=kinds,
        rtol=0,
        atol=0.5,
        unheard_of=1,
    )

    told = [str(meta.to_error()) for meta in found]
    assert len(told) == 3 and all(meta.type is AssertionError for meta in found)
    assert "x is not y\n\nThe failure occurred for item ['a'][0]" in told
    assert any("Expected 2.0 but got 1.0" in text and "(up to 0.5 allowed)" in text for text in told)
    assert str(found[0].to_error("own")) == "own"
    assert str(found[0].to_error(str.upper)).isupper()


def test_containers_may_be_of_any_type_and_must_have_one_structure():
    model = tenon.nn.Sequential(tenon.nn.ReLU(), tenon.nn.Tanh())
    same = {"pair_types": (pairs.ObjectPair,), "sequence_types": (tenon.nn.Sequential,)}

    assert not pairs.not_close_error_metas(model, model, **same)
    with pytest.raises(AssertionError, match="length of the sequences mismatch: 2 != 1"):
        pairs.not_close_error_metas(model, model[:1], **same)
    with pytest.raises(AssertionError, match="keys of the mappings do not match"):
        pairs.not_close_error_metas({"a": 1}, {"b": 1})
    with pytest.raises(TypeError, match="No comparison pair was able"):
        pairs.not_close_error_metas("a", 1, pair_types=(Text,))


def test_what_goes_wrong_in_a_pair_is_told_with_the_pair():
    class Broken(pairs.ObjectPair):
        def extra_repr(self):
            return ["id", ("limit", 3)]

        def compare(self):
            raise OSError("no")

    with pytest.raises(RuntimeError, match=r"(?s)Comparing.*Broken\(.*actual=1,.*limit=3") as seen:
        pairs.not_close_error_metas(1, 2, pair_types=(Broken,))
    assert isinstance(seen.value.__cause__, OSError)
    with pytest.raises(RuntimeError, match="Originating a NumberPair"):
        tenon.testing.assert_close(True, 1)
    with pytest.raises(ValueError, match="got no atol"):
        tenon.testing.assert_close(1.0, 1.0, rtol=1)


def test_the_words_for_a_mismatch_can_be_had_alone():
    a, e = tenon.tensor([1.0, 2.0]), tenon.tensor([1.0, 3.0])

    text = pairs.make_tensor_mismatch_msg(
        a, e, a == e, rtol=0.1, atol=0, identifier=lambda name: f"My {name}"
    )
    assert text.startswith("My Tensor-likes are not close!\n\nMismatched elements: 1 / 2 (50.0%)")
    assert "Scalars are not equal" in pairs.make_scalar_mismatch_msg(1, 2, rtol=0, atol=0)
    assert pairs.default_tolerances(a, tenon.float64) == (1.3e-6, 1e-5)
    assert pairs._unwrap_dtensor_for_comparison(a, e) == (a, e)


def test_the_older_comparison_is_looser_and_takes_lists():
    with pytest.warns(FutureWarning, match="assert_close"):
        tenon.testing.assert_allclose(tenon.tensor([1.0, float("nan")]), [1.00005, float("nan")])
    with pytest.warns(FutureWarning):
        tenon.testing.assert_allclose(tenon.ones(2), tenon.ones(2).double())
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match="not close"):
        tenon.testing.assert_allclose(tenon.ones(2), [1.0, 1.001])


def test_large_tensors_are_compared_to_their_last_element():
    a = tenon.zeros(3, 1 << 14)
    b = a.clone()
    tenon.testing.assert_close(a, b)
    b[2, -1] = 1

    with pytest.raises(AssertionError, match=r"Mismatched elements: 1 / 49152 [^|]*at index \(2, 16383\)"):
        tenon.testing.assert_close(a, b)
