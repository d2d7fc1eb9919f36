"""Three of the programs for JAX, as its users write them: one pure function a step, under ``jax.jit``.

Weights and batch come from tenon's program of the same name, so that all libraries train alike. Parameters and
state are donated, so that JAX may update them in place.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import programs
import tenon


def cross_entropy(scores, targets):
    """The mean over the rows."""
    rows = jax.nn.log_softmax(scores)
    return -jnp.take_along_axis(rows, targets[:, None], 1).mean()


def linear(p, name, x):
    """torch's ``Linear`` of that name."""
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def mlp(p, x):
    """784-512-512-10."""
    return linear(p, "4", jax.nn.relu(linear(p, "2", jax.nn.relu(linear(p, "0", x)))))


def cnn(p, x):
    """Two convolutions, a max-pool, two linear layers."""
    for name in ("0", "2"):
        y = lax.conv_general_dilated(x, p[f"{name}.weight"], (1, 1), "VALID")
        x = jax.nn.relu(y + p[f"{name}.bias"][:, None, None])
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return linear(p, "8", jax.nn.relu(linear(p, "6", x.reshape(len(x), -1))))


def layer_norm(p, name, x):
    """Over the last axis."""
    mean = x.mean(-1, keepdims=True)
    spread = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(spread + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def gpt(p, text, layers=4, heads=4):
    """The GPT of ``programs.gpt``; scores of every word, row by row."""
    batch, length = text.shape
    x = p["words.weight"][text] + p["places.weight"][jnp.arange(length)]
    width = x.shape[-1]
    mask = jnp.triu(jnp.ones((length, length), bool), 1)
    for i in range(layers):
        at = f"blocks.{i}."
        parts = jnp.split(linear(p, at + "qkv", layer_norm(p, at + "norm1", x)), 3, axis=2)
        q, k, v = (a.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for a in parts)
        scores = (q @ k.transpose(0, 1, 3, 2)) * (width // heads) ** -0.5
        weights = jax.nn.softmax(jnp.where(mask, -jnp.inf, scores), -1)
        x = x + linear(p, at + "out", (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape))
        y = linear(p, at + "up", layer_norm(p, at + "norm2", x))
        x = x + linear(p, at + "down", jax.nn.gelu(y, approximate=False))
    return linear(p, "head", layer_norm(p, "norm", x)).reshape(batch * length, -1)


def adam(p, g, m, v, t, decay, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8):
    """One parameter's step of torch's Adam, or AdamW with ``decay``."""
    p = p * (1 - lr * decay)
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    scale = math.log(b1), math.log(b2)
    c1, c2 = (1 - jnp.exp(t * s) for s in scale)
    return p - lr / c1 * m / (jnp.sqrt(v / c2) + eps), m, v


def trainer(program, net, decay=0.0):
    """``step()`` for a network, on the weights and the batch of tenon's program."""
    names = [name for name, _ in program.net.named_parameters()]
    p = {name: jnp.asarray(np.array(value.detach())) for name, value in program.net.named_parameters()}
    m, v = ({name: jnp.zeros_like(a) for name, a in p.items()} for _ in range(2))
    x, y = (jnp.asarray(np.array(a)) for a in program.batch)
    y = y.reshape(-1)

    def step(p, m, v, t, x, y):
        loss, g = jax.value_and_grad(lambda p: cross_entropy(net(p, x), y))(p)
        new = {name: adam(p[name], g[name], m[name], v[name], t, decay) for name in names}
        return *({name: new[name][i] for name in names} for i in range(3)), t + 1, loss

    fast = jax.jit(step, donate_argnums=(0, 1, 2))
    state = [p, m, v, jnp.float32(1)]

    def run():
        *state[:], loss = fast(*state, x, y)
        return loss.block_until_ready()

    return run


PROGRAMS = {
    "mlp": lambda **sizes: trainer(programs.mlp(tenon, **sizes), mlp),
    "cnn": lambda **sizes: trainer(programs.cnn(tenon, **sizes), cnn),
    "gpt": lambda **sizes: trainer(
        programs.gpt(tenon, **sizes),
        lambda p, x: gpt(p, x, sizes.get("layers", 4), sizes.get("heads", 4)),
        decay=0.01,
    ),
}
