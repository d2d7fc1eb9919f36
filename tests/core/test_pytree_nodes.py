"""Registered classes as containers, functions over all leaves, and the paths of leaves."""

import collections

import pytest

import tenon
from tenon.errors import TreeError
from tenon.tensors import pytree as core
from tenon.utils import _pytree as pytree

Pair = collections.namedtuple("Pair", "first second")


class Box:
    def __init__(self, content, label):
        self.content, self.label = content, label


@pytest.fixture
def box():
    pytree.register_pytree_node(
        Box,
        lambda box: ([box.content], box.label),
        lambda children, label: Box(*children, label),
        flatten_with_keys_fn=lambda box: ([(pytree.GetAttrKey("content"), box.content)], box.label),
    )
    yield Box
    del core.REGISTERED[Box]


def test_objects_of_a_registered_class_are_taken_apart_and_put_together(box):
    tree = {"a": box((1, 2), "x"), "b": 3}

    doubled = pytree.tree_map(lambda leaf: leaf * 2, tree)
    assert doubled["a"].content == (2, 4) and doubled["a"].label == "x" and doubled["b"] == 6
    assert pytree.tree_structure(tree) == pytree.tree_structure({"a": box((0, 0), "x"), "b": 0})
    assert pytree.tree_structure(tree) != pytree.tree_structure({"a": box((0, 0), "y"), "b": 0})
    with pytest.raises(ValueError, match="already registered"):
        pytree.register_pytree_node(box, list, box)


def test_compiled_functions_take_registered_objects(box):
    double = tenon.compile(lambda boxed: boxed.content * 2)

    found = [double(box(tenon.full((2,), float(i)), "x")).tolist() for i in range(5)]
    assert found == [[2.0 * i] * 2 for i in range(5)] and len(double.programs) == 1


def test_paths_are_told_as_torch_tells_them(box):
    torch_pytree = pytest.importorskip("torch.utils._pytree")
    tree = {"a": [1, Pair(2, (3,))], 4: collections.OrderedDict(b=None)}

    ours = [(pytree.keystr(path), leaf) for path, leaf in pytree.tree_leaves_with_path(tree)]
    theirs = [(torch_pytree.keystr(path), leaf) for path, leaf in torch_pytree.tree_leaves_with_path(tree)]
    assert ours == theirs
    assert pytree.tree_map_with_path(
        lambda path, x, y: (pytree.keystr(path), x + y), [1, box(2, "")], [3, box(4, "")]
    )[1].content == ("[1].content", 6)
    core.REGISTERED[box] = core.Node(
        *[getattr(core.REGISTERED[box], n) for n in ("flatten", "unflatten")], None
    )
    with pytest.raises(TreeError, match="flatten_with_keys_fn"):
        pytree.tree_flatten_with_path(box(1, ""))


def test_questions_about_leaves():
    tree, seen = [1, (2.5, "a")], []

    assert pytree.tree_any(lambda x: x == "a", tree) and not pytree.tree_all(bool, [tree, 0])
    assert pytree.tree_all_only(int, lambda x: x == 1, tree)
    assert not pytree.tree_any_only((int, float), lambda x: x > 3, tree)
    assert pytree.tree_map_(seen.append, tree) is tree and seen == [1, 2.5, "a"]
    assert list(pytree.tree_iter(tree)) == seen and pytree.tree_is_leaf(1) and not pytree.tree_is_leaf(tree)
    assert pytree.tree_structure(3) == pytree.LeafSpec()
