"""The public view of the graph: names of nodes, leaves' nodes and their hooks, and gradient edges."""

import gc
import weakref

import pytest

import tenon
from tenon.autograd import Function, Variable
from tenon.autograd.graph import GradientEdge, Node, get_gradient_edge, increment_version
from tenon.errors import ArgumentError, GradError, ModifiedValueError, ViewError


def leaf(*values):
    return tenon.tensor(values, dtype=tenon.float64, requires_grad=True)


class Nothing(Function):
    """Identity whose backward gives no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return None


def test_nodes_have_classes_of_torchs_names():
    x = leaf(1.0, 2.0)
    node = (x * x + 3).grad_fn

    assert type(node).__name__ == "AddBackward0"
    assert type(node.next_functions[0][0]).__name__ == "MulBackward0"
    assert type(node.next_functions[0][0].next_functions[0][0]).__name__ == "AccumulateGrad"
    assert type(Nothing.apply(x).grad_fn).__name__ == "NothingBackward"
    changed = x.clone()
    changed[0] = 0
    assert type(changed.grad_fn) is type(changed.grad_fn)
    assert type(changed.grad_fn).__name__ == changed.grad_fn.name()


def test_a_node_can_be_called():
    x = leaf(3.0)
    node = (x**2).grad_fn

    assert node(leaf(1.0).detach()).item() == 6.0
    with pytest.raises(TypeError, match="expected 1 arguments, got 2 instead"):
        node(x, x)


def test_input_metadata_tells_what_a_node_expects():
    meta = (leaf(1.0, 2.0) * 2).grad_fn._input_metadata[0]

    assert tuple(meta.shape) == (2,) and meta.dtype is tenon.float64


def test_hooks_around_a_leaf_run_in_torchs_order():
    x = leaf(1.0, 1.0)
    node = x.view_as(x).grad_fn.next_functions[0][0]

    def halve_later(leaf):
        leaf.grad.add_(0.5)

    def tenfold(inputs, outputs):
        assert inputs == ()
        x.grad = outputs[0].mul(10)

    x.register_hook(lambda g: g - 2)
    node.register_prehook(lambda grads: (grads[0] / 5,))
    x.register_post_accumulate_grad_hook(halve_later)
    node.register_hook(tenfold)
    x.sum().backward()

    assert x.grad.tolist() == pytest.approx([3.0, 3.0])  # ((1 - 2) / 5 + 0.5) * 10


def test_grad_runs_no_node_hooks_where_it_stops_and_backward_does():
    a = leaf(1.0)
    b = a * 2
    c = (b * 2).sum()
    ran = []
    b.register_hook(lambda g: ran.append("tensor"))
    b.grad_fn.register_prehook(lambda g: ran.append("before"))
    b.grad_fn.next_functions[0][0].register_prehook(lambda g: ran.append("leaf"))

    tenon.autograd.grad(c, b, retain_graph=True)
    assert ran == ["tensor"]

    ran.clear()
    c.backward(inputs=(a, b))
    assert ran == ["tensor", "before", "leaf"]


def test_a_post_accumulate_hook_must_return_none():
    x = leaf(1.0)
    x.register_post_accumulate_grad_hook(lambda p: p.grad)

    with pytest.raises(GradError, match="hooks should return None"):
        x.sum().backward()


def test_edges_are_ends_of_a_pass():
    x = leaf(1.0, 2.0)
    middle = x.sin().sum()
    out = middle.exp()
    edge = get_gradient_edge(middle)
    expected = tenon.autograd.grad(out, x, retain_graph=True)[0]

    (at,) = tenon.autograd.grad(out, edge, retain_graph=True)
    (through,) = tenon.autograd.grad(edge, x, grad_outputs=at)

    assert at.item() == pytest.approx(out.item())
    assert through.tolist() == pytest.approx(expected.tolist())
    assert tenon.autograd.grad(x.exp().sum(), get_gradient_edge(x))[0].tolist() == x.exp().tolist()


def test_an_edge_outlives_its_tensor_and_backward_takes_it():
    x = leaf(2.0)
    edge = get_gradient_edge(x.clone())

    tenon.autograd.backward(edge)

    assert x.grad.tolist() == [1.0]


def test_an_edge_keeps_the_place_before_a_change():
    x = leaf(1.0, 2.0).clone()
    edge = get_gradient_edge(x)
    x *= 2

    before, after = tenon.autograd.grad(x.sum(), (edge, x))

    assert before.tolist() == [2.0, 2.0] and after.tolist() == [1.0, 1.0]


def test_what_edges_refuse():
    x = leaf(1.0, 2.0).clone()
    edge = GradientEdge(x.grad_fn, x.output_nr)
    unused = get_gradient_edge(leaf(1.0).clone())
    total = x.sum()
    grad = tenon.autograd.grad

    with pytest.raises(GradError, match="Mismatch in shape"):
        grad(edge, x, tenon.ones(3))
    with pytest.raises(GradError, match="required to have the same dtype"):
        grad(edge, x, tenon.ones(2, dtype=tenon.complex64))
    with pytest.raises(GradError, match="only for scalar outputs"):
        grad(edge, x)
    with pytest.raises(GradError, match="materialize_grads cannot be used"):
        grad(total, (x, unused), allow_unused=True, materialize_grads=True)
    with pytest.raises(ArgumentError, match="non-empty inputs"):
        grad(total, [])
    with pytest.raises(GradError, match="has no output 3"):
        grad(GradientEdge(x.grad_fn, 3), x)


def test_functions_run_where_no_gradient_comes():
    seen = []

    class Watching(Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            seen.append(g)
            return g, None

    for materialize in (True, False):
        x = leaf(1.0)
        Nothing.apply(Watching.apply(x * 2, materialize)).backward()
        assert (x.grad is None) is not materialize
    assert seen[0].tolist() == [0.0] and seen[1] is None


def test_nothing_and_a_gradient_add_up():
    x = leaf(3.0)
    y = x * x

    (Nothing.apply(y) + y).backward()

    assert x.grad.tolist() == [6.0]


def test_a_leaf_is_freed_with_its_last_reference_though_its_node_was_seen():
    x = leaf(1.0)
    x.clone().grad_fn.next_functions[0][0].register_hook(lambda i, o: None)
    gone = weakref.ref(x)

    gc.disable()
    try:
        del x
        assert gone() is None
    finally:
        gc.enable()


def test_retain_grad_follows_views_of_a_changed_base():
    base = leaf(1.0).clone()
    base.retain_grad()
    view, other = base[:], base[:]
    view.retain_grad()
    other.retain_grad()
    view.mul_(2)

    (view + other + base).sum().backward()

    assert [t.grad.item() for t in (view, other, base)] == [1.0, 1.0, 3.0]


def test_hooks_on_a_view_are_about_the_view_before_a_change():
    base = leaf(1.0).clone()
    view = base[:]
    seen = []
    view.register_hook(lambda g: seen.append("old"))
    view.mul_(2)
    view.register_hook(lambda g: seen.append("new"))

    view.sum().backward()

    assert seen == ["new"]


def test_a_view_made_before_its_base_became_a_leaf_cannot_change():
    a = tenon.ones(2)
    view = a[:]
    a.requires_grad = True

    with pytest.raises(GradError, match="a view of a leaf Variable"):
        view.add_(1)


def test_hooks_on_saved_values_left_in_the_middle_of_a_pass_are_restored():
    def unpack(x):
        inner.__exit__()
        return x

    inner = tenon.autograd.graph.saved_tensors_hooks(lambda x: x, unpack)
    with tenon.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), inner:
        x = leaf(0.0)
        x.sin().sum().backward()

    assert x.grad.tolist() == [1.0]


def test_classes_are_not_to_be_decorated():
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        tenon.no_grad()(type("Made", (), {"__init__": lambda self: None}))


def test_functions_are_not_to_be_instantiated():
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        Nothing()


def test_node_is_what_grad_fn_and_ctx_are():
    class Asking(Function):
        @staticmethod
        def forward(ctx, x):
            assert isinstance(ctx, Node)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(1.0)

    assert isinstance(Asking.apply(x).grad_fn, Node) and isinstance(x.exp().grad_fn, Node)
    assert issubclass(type(x.exp().grad_fn), Node) and not isinstance(x, Node)


def test_increment_version_counts_a_change():
    x = leaf(2.0)
    y = x * x
    increment_version(x)

    with pytest.raises(ModifiedValueError):
        y.backward()


def test_a_function_may_define_vjp_instead_of_backward():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf(1.0)
    Twice.apply(x).backward()

    assert x.grad.item() == 2.0


def test_mark_dirty_is_for_inputs():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            made = x * 3
            ctx.mark_dirty(made)
            return made

        @staticmethod
        def backward(ctx, g):
            return g * 3

    with pytest.warns(UserWarning, match="Only input Tensors should be given"):
        Wrong.apply(leaf(1.0).clone())


def test_views_that_a_function_returns_of_untracked_tensors_cannot_take_a_history():
    class Viewing(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g

    view = Viewing.apply(tenon.ones(2, dtype=tenon.float64))

    with pytest.raises(ViewError, match="created inside a custom Function"):
        view += leaf(1.0)


def test_callbacks_may_queue_callbacks():
    seen = []
    x = leaf(1.0)
    queue = Variable._execution_engine.queue_callback

    def first():
        seen.append("first")
        queue(lambda: seen.append("second"))

    x.register_post_accumulate_grad_hook(lambda leaf: queue(first))

    x.sum().backward()

    assert seen == ["first", "second"]


def test_callbacks_are_called_at_the_end_of_grad_too_and_of_the_outermost_pass():
    seen = []
    x = leaf(1.0)
    queue = Variable._execution_engine.queue_callback

    def within(grad):
        with tenon.enable_grad():
            inner = x * 2
        inner.register_hook(lambda grad: queue(lambda: seen.append("end")))
        tenon.autograd.grad(inner, x)
        seen.append("inner")

    outer = x * 3
    outer.register_hook(within)

    tenon.autograd.grad(outer, x)
    assert seen == ["inner", "end"]
    outer = x * 3
    outer.register_hook(lambda grad: queue(lambda: seen.append("lost")))
    outer.register_hook(lambda grad: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tenon.autograd.grad(outer, x)
    tenon.autograd.grad(x * 3, x)
    assert "lost" not in seen


def test_a_function_has_one_backward_rule():
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

        @staticmethod
        def vjp(ctx, g):
            return g

    with pytest.raises(GradError, match="Implementing both 'backward' and 'vjp'"):
        Both.apply(leaf(1.0)).backward()
