"""Nested containers are flattened and rebuilt."""

from collections import OrderedDict, defaultdict, namedtuple

import pytest

from tenon.tensors.pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten
from tenon.utils import _pytree

Point = namedtuple("Point", "x y")


def test_every_kind_of_container_comes_back_as_it_was():
    tree = {
        "list": [1, (2, 3)],
        "point": Point(4, [5]),
        "ordered": OrderedDict(b=6, a=7),
        "default": defaultdict(list, k=8),
        "empty": [],
        "none": None,
    }

    leaves, spec = tree_flatten(tree)
    back = tree_unflatten(leaves, spec)

    assert leaves == [1, 2, 3, 4, 5, 6, 7, 8, None]
    assert back == tree
    assert type(back["point"]) is Point and type(back["ordered"]) is OrderedDict
    assert back["default"]["new"] == []


def test_map_follows_several_nests_of_one_shape():
    assert tree_map(lambda a, b: a + b, {"a": [1, 2]}, {"a": [10, 20]}) == {"a": [11, 22]}
    with pytest.raises(ValueError, match="the structures differ"):
        tree_map(lambda a, b: a, [1], [1, 2])


def test_map_only_leaves_the_others_alone():
    assert tree_map_only(int, lambda x: -x, [1, "a", (2,)]) == [-1, "a", (-2,)]
    assert tree_map_only(lambda x: x == "a", str.upper, [1, "a"]) == [1, "A"]


def test_a_predicate_makes_a_container_a_leaf():
    assert tree_leaves([(1, 2), 3], is_leaf=lambda t: isinstance(t, tuple)) == [(1, 2), 3]


def test_wrong_number_of_leaves_is_refused():
    _, spec = tree_flatten([1, 2])

    with pytest.raises(ValueError, match="got 1 leaves for a structure of 2"):
        tree_unflatten([1], spec)


def test_torchs_path_offers_the_same_functions():
    assert _pytree.tree_map is tree_map
