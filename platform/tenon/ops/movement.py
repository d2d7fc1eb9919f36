"""Movement: the same elements under other shapes and orders. Most are views."""

from __future__ import annotations

from tenon.compat.saved_readers import TRIANGLE, attr
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.sharding_rule import ShardingRule, along, numbered, reshaped
from tenon.errors import ShapeError, ViewError
from tenon.kernels.shapes import broadcast_shapes, infer_reshape, normalize_axis
from tenon.tensors.storage.untyped import strided


class Move(Primitive):
    """Base of the movement ops."""

    kind = Kind.MOVE


class Reshape(Move):
    """The elements in C order under another shape; a view where the strides allow one."""

    view = True
    grad_name = "ReshapeAliasBackward0"

    def sharding_rule(self, x, *, shape, **attrs):
        """Merged and split axes correspond by the outermost."""
        return reshaped(x.shape, self.infer(x, shape=shape, **attrs).shape)

    def infer(self, x, *, shape):
        """``shape`` with its -1 filled in."""
        return Aval(infer_reshape(tuple(x.shape), shape), x.dtype)

    def forward(self, xp, x, *, shape):
        """NumPy's reshape."""
        return x.reshape(shape)

    def vjp_x(self, f, g, out, x, *, shape):
        return f.reshape(g, shape=tuple(x.shape))

    def torch_name(self, args, attrs):
        """PyTorch's name for a reshape that is a view."""
        return "ViewBackward0"


class View(Reshape):
    """A reshape without a copy; ViewError if it would need one."""

    grad_name = "ViewBackward0"
    copying_form = True

    def forward(self, xp, x, *, shape):
        """NumPy's reshape, which may not copy."""
        try:
            return x.reshape(infer_reshape(x.shape, shape), copy=False)
        except ValueError:
            raise ViewError(
                "view size is not compatible with input tensor's size and stride (at least one dimension"
                f" spans across two contiguous subspaces). Use .reshape(...) instead. (shape {list(x.shape)},"
                f" target {list(shape)})"
            ) from None


class Unsqueeze(Reshape):
    """A reshape that adds axes of size 1."""

    copying_form = True

    def torch_name(self, args, attrs):
        """PyTorch's name."""
        return "UnsqueezeBackward0"


class Squeeze(Reshape):
    """A reshape that drops axes of size 1; ``explicit`` if the call listed them."""

    copying_form = True

    def infer(self, x, *, shape, explicit=False):
        """``shape``."""
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, shape, explicit=False):
        """NumPy's reshape."""
        return x.reshape(shape)

    def vjp_x(self, f, g, out, x, *, shape, explicit=False):
        return f.reshape(g, shape=tuple(x.shape))

    def torch_name(self, args, attrs):
        """PyTorch's name."""
        return "SqueezeBackward1" if attrs.get("explicit") else "SqueezeBackward0"


class Permute(Move):
    """Axes in another order."""

    view = True
    saved_names = {"dims": attr("axes")}
    copying_form = True

    def sharding_rule(self, x, *, axes):
        """The axes in their new order."""
        return ShardingRule((numbered(x.shape),), (tuple(axes),), linear="jointly", moves=True)

    def infer(self, x, *, axes):
        """The sizes in the order of ``axes``."""
        return Aval(tuple(x.shape[a] for a in axes), x.dtype)

    def forward(self, xp, x, *, axes):
        """A view."""
        return x.transpose(axes)

    def vjp_x(self, f, g, out, x, *, axes):
        back = [0] * len(axes)
        for i, a in enumerate(axes):
            back[a] = i
        return f.permute(g, axes=tuple(back))


class Transpose(Move):
    """Two axes exchanged."""

    view = True
    saved_names = {"dim0": attr("axis0"), "dim1": attr("axis1")}
    copying_form = True

    def sharding_rule(self, x, *, axis0, axis1):
        """Two axes exchanged."""
        after = list(numbered(x.shape))
        after[axis0], after[axis1] = after[axis1], after[axis0]
        return ShardingRule((numbered(x.shape),), (tuple(after),), linear="jointly", moves=True)

    def infer(self, x, *, axis0, axis1):
        """The sizes with both axes exchanged."""
        shape = list(x.shape)
        shape[axis0], shape[axis1] = shape[axis1], shape[axis0]
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, axis0, axis1):
        """A view."""
        return x.swapaxes(axis0, axis1)

    def vjp_x(self, f, g, out, x, *, axis0, axis1):
        return f.transpose(g, axis0=axis0, axis1=axis1)


class Expand(Move):
    """Size-1 axes repeated without copying (stride 0)."""

    view = True
    identity = True
    copying_form = True

    def sharding_rule(self, x, *, shape):
        """Repeated and new axes are whole."""
        lead = len(shape) - len(x.shape)
        own = numbered(x.shape, [a for a, size in enumerate(x.shape) if size != shape[a + lead]])
        return ShardingRule((own,), ((None,) * lead + own,), linear="jointly", moves=True, shape_attr="shape")

    def infer(self, x, *, shape):
        """``shape``, to which the input must broadcast."""
        if broadcast_shapes(tuple(x.shape), tuple(shape)) != tuple(shape):
            raise ShapeError(
                f"The expanded size of the tensor {list(shape)} must match the existing size {list(x.shape)}"
                " at every non-singleton dimension."
            )
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, shape):
        """A writable view, as in PyTorch; that of NumPy's ``broadcast_to`` is read-only."""
        if x.shape == shape:
            return x[...]
        lead = len(shape) - x.ndim
        if lead < 0:
            raise ShapeError(f"expand: {list(x.shape)} has more axes than {list(shape)}.")
        strides = [0] * lead
        for own, target, step in zip(x.shape, shape[lead:], x.strides, strict=True):
            if own != target and own != 1:
                raise ShapeError(
                    f"The expanded size of the tensor ({target}) must match the existing size ({own}) at"
                    f" non-singleton dimension.  Target sizes: {list(shape)}.  Tensor sizes: {list(x.shape)}"
                )
            strides.append(step if own == target else 0)
        return strided(xp, x, shape, strides)

    def vjp_x(self, f, g, out, x, *, shape):
        return f.sum_to(g, shape=tuple(x.shape))


class Flip(Move):
    """Order reversed along ``axes``; a copy, as in PyTorch."""

    saved_names = {"dims": attr("axes")}

    def sharding_rule(self, x, *, axes, **attrs):
        """The other axes are independent."""
        return along(x.shape, axes or range(len(x.shape)), linear="jointly", moves=True)

    def infer(self, x, *, axes):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, *, axes):
        """A copy, so that strides are positive."""
        return xp.flip(x, axes).copy(order="K")

    def vjp_x(self, f, g, out, x, *, axes):
        return f.flip(g, axes=axes)


class Roll(Move):
    """Elements shifted cyclically along ``axes``."""

    saved_names = {"dims": attr("axes")}

    def sharding_rule(self, x, *, axes, **attrs):
        """The other axes are independent."""
        return along(x.shape, axes or range(len(x.shape)), linear="jointly", moves=True)

    def infer(self, x, *, shifts, axes):
        """The input's own aval."""
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, *, shifts, axes):
        """NumPy's roll."""
        return xp.roll(x, shifts, axes)

    def vjp_x(self, f, g, out, x, *, shifts, axes):
        return f.roll(g, shifts=tuple(-s for s in shifts), axes=axes)


class SliceAxis(Move):
    """``x[..., start:stop, ...]`` along one axis."""

    view = True
    grad_name = "SliceBackward0"

    def sharding_rule(self, x, *, axis, start, stop):
        """The cut axis is whole."""
        return along(x.shape, [] if stop - start == x.shape[axis] else [axis], linear="jointly", moves=True)

    def infer(self, x, *, axis, start, stop):
        """The shape with ``axis`` of size ``stop - start``."""
        shape = list(x.shape)
        shape[axis] = stop - start
        return Aval(tuple(shape), x.dtype)

    def forward(self, xp, x, *, axis, start, stop):
        """A view."""
        return x[(slice(None),) * axis + (slice(start, stop),)]

    def vjp_x(self, f, g, out, x, *, axis, start, stop):
        widths = [(0, 0)] * len(x.shape)
        widths[axis] = (start, x.shape[axis] - stop)
        return f.pad(g, widths=tuple(widths), value=0)


class Pad(Move):
    """Constant padding: ``widths`` is ``(before, after)`` per axis; negative widths cut."""

    follows = 1

    def sharding_rule(self, x, *, widths, value=0):
        """Padded axes are whole."""
        padded = [a for a, width in enumerate(widths) if any(width)]
        return along(x.shape, padded, linear="" if value else "jointly")

    def infer(self, x, *, widths, value=0):
        """Every axis grows by its two widths."""
        shape = tuple(s + a + b for s, (a, b) in zip(x.shape, widths, strict=True))
        if any(s < 0 for s in shape):
            raise ShapeError(f"pad: {list(x.shape)} padded by {list(widths)} would have a negative size.")
        return Aval(shape, x.dtype)

    def forward(self, xp, x, *, widths, value=0):
        """One allocation, one copy."""
        shape = self.infer(x, widths=widths).shape
        result = xp.zeros(shape, x.dtype) if value == 0 else xp.full(shape, value, x.dtype)
        target = tuple(slice(max(a, 0), n - max(b, 0)) for (a, b), n in zip(widths, shape, strict=True))
        source = tuple(slice(max(-a, 0), s - max(-b, 0)) for (a, b), s in zip(widths, x.shape, strict=True))
        result[target] = x[source]
        return result

    def vjp_x(self, f, g, out, x, *, widths, value=0):
        return f.pad(g, widths=tuple((-a, -b) for a, b in widths), value=0)

    def torch_name(self, args, attrs):
        """PyTorch's name of constant padding."""
        return "ConstantPadNdBackward0"


class Tril(Move):
    """Lower triangle of the last two axes, zeros above diagonal ``k``."""

    plain = True
    saved_names = TRIANGLE

    def sharding_rule(self, x, *, k=0):
        """The leading axes are independent."""
        return along(x.shape, range(-2, 0), linear="jointly")

    def infer(self, x, *, k=0):
        """The input's own aval."""
        if len(x.shape) < 2:
            raise ShapeError(
                f"{self.name}: input tensor must have at least 2 dimensions, got {len(x.shape)}."
            )
        return Aval(x.shape, x.dtype)

    def forward(self, xp, x, *, k=0):
        """NumPy's tril."""
        self.infer(x)
        return xp.tril(x, k).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x, *, k=0):
        return f.tril(g, k=k)


class Triu(Tril):
    """Upper triangle of the last two axes, zeros below diagonal ``k``."""

    def forward(self, xp, x, *, k=0):
        """NumPy's triu."""
        self.infer(x)
        return xp.triu(x, k).astype(x.dtype, copy=False)

    def vjp_x(self, f, g, out, x, *, k=0):
        return f.triu(g, k=k)


def moved(rank: int, axis: int, to: int) -> tuple[int, ...]:
    """Return the permutation that moves ``axis`` to the position ``to``."""
    order = [a for a in range(rank) if a != normalize_axis(axis, rank)]
    order.insert(normalize_axis(to, rank), normalize_axis(axis, rank))
    return tuple(order)


unsqueeze, squeeze = Unsqueeze(), Squeeze()
reshape, view, permute, transpose, expand = Reshape(), View(), Permute(), Transpose(), Expand()
flip, roll, slice_axis = Flip(), Roll(), SliceAxis()
pad, tril, triu = Pad(), Tril(), Triu()
