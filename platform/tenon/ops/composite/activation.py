"""Activations: one class each, which runs as a single node with a derivative written by hand.

Smooth activations compute the derivative together with the value, as both share an exponential, and keep it
as a residual: the gradient is then one product.
"""

from __future__ import annotations

from tenon.compat.saved_readers import always, attr
from tenon.engine.op import Composite, Kind
from tenon.engine.types import Attr, Operand, OpNamespace
from tenon.errors import UnsupportedDTypeError
from tenon.ops.dtype_queries import is_floating, is_short, matching, widened

_ROOT_HALF = 0.7071067811865476
_DENSITY = 0.3989422804014327  # 1 / sqrt(2 pi)
_CUBIC = 0.044715
_ROOT_2_PI = 0.7978845608028654  # sqrt(2 / pi)


class Activation(Composite):
    """Base of the elementwise activations."""

    kind = Kind.ELEMENTWISE


class SmoothActivation(Activation):
    """Base of the activations that keep their derivative: ``with_slope`` returns it with the value."""

    saves = ("x",)  # for second-order gradients, which go through the decomposition
    residuals = 1

    def with_slope(self, f: OpNamespace, x: Operand, **attrs: Attr) -> tuple[Operand, Operand]:
        """Return value and derivative of each element."""
        raise TypeError(f"activation {self.name} defines no with_slope.")

    def raw_forward(self, f, x, **attrs):
        """Return the value, then the derivative."""
        need_float(self.name, x)
        return self.with_slope(f, x, **attrs)

    def vjp_joint(self, f, g, out, x, *, needs, residuals, **attrs):
        """Multiply the gradient by the derivative kept as residual."""
        return [f.mul(g, residuals[0])]


def need_float(name: str, x: Operand) -> None:
    """Raise UnsupportedDTypeError unless ``x`` has a floating dtype."""
    if not is_floating(x):
        raise UnsupportedDTypeError(
            f'"{name}" not implemented for {x.dtype}. Cast to a float dtype first, e.g. x.float().'
        )


class Gelu(SmoothActivation):
    """``x`` times the standard normal cumulative distribution function of ``x``, or of its approximation by
    a hyperbolic tangent if ``approximate="tanh"``."""

    def decompose(self, f, x, *, approximate="none"):
        need_float(self.name, x)
        if approximate == "tanh":
            (wide,) = widened(f, x)
            return matching(f, f.mul(wide, _tanh_gate(f, wide)), x)
        return f.mul(x, _normal_cdf(f, x))

    def with_slope(self, f, x, *, approximate="none"):
        """Return ``x * gate`` and ``gate + x * gate'``."""
        if is_short(x):  # whose cubes overflow in float16
            results = self.with_slope(f, *widened(f, x), approximate=approximate)
            return tuple(matching(f, r, x) for r in results)
        if approximate == "tanh":
            gate = _tanh_gate(f, x)
            # gate = (1 + tanh(u)) / 2, so gate' = 2 gate (1 - gate) u', u = sqrt(2 / pi) (x + c x^3)
            inner = f.add(f.mul(f.mul(x, x), 6 * _CUBIC * _ROOT_2_PI), 2 * _ROOT_2_PI)
            correction = f.mul(f.mul(f.mul(gate, f.sub(1.0, gate)), inner), x)
        else:
            gate = _normal_cdf(f, x)
            correction = f.mul(f.mul(f.exp(f.mul(f.mul(x, x), -0.5)), _DENSITY), x)
        return f.mul(x, gate), f.add(gate, correction)


def _normal_cdf(f: OpNamespace, x: Operand) -> Operand:
    return f.mul(f.erfc(f.mul(x, -_ROOT_HALF)), 0.5)


def _tanh_gate(f: OpNamespace, x: Operand) -> Operand:
    cubic = f.mul(x, f.add(f.mul(f.mul(x, x), _CUBIC * _ROOT_2_PI), _ROOT_2_PI))
    return f.add(f.mul(f.tanh(cubic), 0.5), 0.5)


class Silu(SmoothActivation):
    """``x * sigmoid(x)``."""

    expression = "a * sigmoid(a)"
    float_only = True

    def decompose(self, f, x):
        need_float(self.name, x)
        return f.mul(x, f.sigmoid(x))

    # (x s)' = s (1 + x (1 - s))
    def with_slope(self, f, x):
        """Compute both from one sigmoid."""
        gate = f.sigmoid(x)
        return f.mul(x, gate), f.mul(gate, f.add(f.mul(x, f.sub(1.0, gate)), 1.0))


class Mish(SmoothActivation):
    """``x * tanh(softplus(x))``."""

    computes_in_float32 = True

    def decompose(self, f, x):
        need_float(self.name, x)
        return f.mul(x, f.tanh(f.softplus(x)))

    # (x t)' = t + x (1 - t^2) sigmoid(x)
    def with_slope(self, f, x):
        """Compute both from one softplus."""
        gate = f.tanh(f.softplus(x))
        return f.mul(x, gate), f.add(gate, f.mul(f.mul(x, f.sub(1.0, f.mul(gate, gate))), f.sigmoid(x)))


class LeakyRelu(Activation):
    """``x`` where positive, else ``slope * x``."""

    saves = ("x",)
    expression = "a if a > 0 else a * slope"
    float_only = True
    inplace_overload = True
    saved_names = {"negative_slope": attr("slope")}

    def decompose(self, f, x, *, slope=0.01):
        need_float(self.name, x)
        return f.where(f.gt(x, 0), x, f.mul(x, slope))

    def vjp_x(self, f, g, out, x, *, slope=0.01):
        return f.leaky_relu_grad(g, x, slope=slope)


class LeakyReluGrad(Activation):
    """``g`` where ``x`` is positive, else ``slope * g``."""

    inputs = ("g", "x")
    expression = "a if b > 0 else a * slope"
    float_only = True

    def decompose(self, f, g, x, *, slope=0.01):
        return f.where(f.gt(x, 0), g, f.mul(g, slope))


class Elu(Activation):
    """``scale * x`` where positive, else ``scale * alpha * (exp(x * rate) - 1)``."""

    saves = ("x",)
    computes_in_float32 = True
    inplace_overload = True
    saved_names = {"scale": always(1), "input_scale": always(1)}

    def decompose(self, f, x, *, alpha=1.0, scale=1.0, rate=1.0):
        need_float(self.name, x)
        below = f.mul(f.expm1(f.mul(f.minimum(x, 0.0), rate)), alpha * scale)
        return f.where(f.gt(x, 0), f.mul(x, scale), below)

    def vjp_x(self, f, g, out, x, *, alpha=1.0, scale=1.0, rate=1.0):
        below = f.mul(f.exp(f.mul(f.minimum(x, 0.0), rate)), alpha * scale * rate)
        return f.mul(g, f.where(f.gt(x, 0), scale, below))

    def torch_name(self, args, attrs):
        """``CeluBackward0`` if there is a rate other than 1."""
        return "EluBackward0" if attrs.get("rate", 1.0) == 1.0 else "CeluBackward0"


class Softplus(Activation):
    """``log(1 + exp(beta * x)) / beta``; the identity where ``beta * x > threshold``."""

    saves = ("x",)
    computes_in_float32 = True
    autocast_cuda = "float32"

    def decompose(self, f, x, *, beta=1.0, threshold=20.0):
        need_float(self.name, x)
        scaled = f.mul(x, beta)
        smooth = f.div(f.log1p(f.exp(f.minimum(scaled, threshold))), beta)
        return f.where(f.gt(scaled, threshold), x, smooth)

    def vjp_x(self, f, g, out, x, *, beta=1.0, threshold=20.0):
        return f.softplus_grad(g, x, beta=beta, threshold=threshold)


class SoftplusGrad(Activation):
    """``g`` times the sigmoid of ``beta * x``; ``g`` itself where ``beta * x > threshold``."""

    inputs = ("g", "x")
    expression = "a if b * beta > threshold else a * sigmoid(b * beta)"
    float_only = True

    def decompose(self, f, g, x, *, beta=1.0, threshold=20.0):
        scaled = f.mul(x, beta)
        return f.where(f.gt(scaled, threshold), g, f.mul(g, f.sigmoid(scaled)))


class Logsigmoid(Activation):
    """``log(sigmoid(x))``, computed without overflow for large ``x`` of either sign."""

    saves = ("x",)
    grad_name = "LogSigmoidBackward0"
    computes_in_float32 = True

    def decompose(self, f, x):
        need_float(self.name, x)
        return f.sub(f.minimum(x, 0.0), f.log1p(f.exp(f.neg(f.abs(x)))))

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.sigmoid(f.neg(x)))


class Hardtanh(Activation):
    """``x`` clamped to ``[low, high]``; the gradient is 0 at and beyond the bounds."""

    saves = ("x",)
    expression = "minimum(maximum(a, low), high)"
    saved_names = {"min_val": attr("low"), "max_val": attr("high")}

    def decompose(self, f, x, *, low=-1.0, high=1.0):
        return f.clamp(x, low, high)

    def vjp_x(self, f, g, out, x, *, low=-1.0, high=1.0):
        return f.where(f.logical_and(f.gt(x, low), f.lt(x, high)), g, 0)


class Hardsigmoid(Activation):
    """``clamp(x / 6 + 1 / 2, 0, 1)``."""

    saves = ("x",)
    computes_in_float32 = True

    def decompose(self, f, x):
        need_float(self.name, x)
        return f.div(f.clamp(f.add(x, 3.0), 0.0, 6.0), 6.0)

    def vjp_x(self, f, g, out, x):
        return f.where(f.logical_and(f.gt(x, -3.0), f.lt(x, 3.0)), f.mul(g, 1.0 / 6.0), 0)


class Hardswish(Activation):
    """``x * hardsigmoid(x)``."""

    saves = ("x",)
    computes_in_float32 = True

    def decompose(self, f, x):
        need_float(self.name, x)
        return f.div(f.mul(x, f.clamp(f.add(x, 3.0), 0.0, 6.0)), 6.0)

    def vjp_x(self, f, g, out, x):
        original = g
        g, x = widened(f, g, x)  # rounding each of the three steps would show in the result
        middle = f.mul(g, f.add(f.div(x, 3.0), 0.5))
        return matching(f, f.where(f.le(x, -3.0), 0, f.where(f.lt(x, 3.0), middle, g)), original)


class Threshold(Activation):
    """``x`` where it is above ``threshold``, else ``value``."""

    saves = ("x",)
    computes_in_float32 = True
    inplace_overload = True

    def decompose(self, f, x, *, threshold, value):
        return f.where(f.le(x, threshold), value, x)

    def vjp_x(self, f, g, out, x, *, threshold, value):
        return f.where(f.le(x, threshold), 0, g)


class Softshrink(Activation):
    """``x`` moved towards 0 by ``bound``; 0 where ``|x| <= bound``."""

    saves = ("x",)
    computes_in_float32 = True

    def decompose(self, f, x, *, bound=0.5):
        return f.where(
            f.gt(x, bound), f.sub(x, bound), f.where(f.lt(x, -bound), f.add(x, bound), f.mul(x, 0))
        )

    def vjp_x(self, f, g, out, x, *, bound=0.5):
        return f.where(f.logical_and(f.ge(x, -bound), f.le(x, bound)), 0, g)


class Hardshrink(Softshrink):
    """``x``; 0 where ``|x| <= bound``."""

    computes_in_float32 = True

    def decompose(self, f, x, *, bound=0.5):
        return f.where(f.logical_and(f.ge(x, -bound), f.le(x, bound)), 0, x)


gelu, silu, mish = Gelu(), Silu(), Mish()
leaky_relu, elu, softplus, logsigmoid = LeakyRelu(), Elu(), Softplus(), Logsigmoid()
leaky_relu_grad, softplus_grad = LeakyReluGrad(), SoftplusGrad()
hardtanh, hardsigmoid, hardswish = Hardtanh(), Hardsigmoid(), Hardswish()
threshold, softshrink, hardshrink = Threshold(), Softshrink(), Hardshrink()
