"""Time models written as C beside onnxruntime and XLA on the same models: ``python tests/bench/export.py``.

One thread and batch 1: ResNet-18 on 224 x 224 pixels, a GPT of 8 layers on 128 tokens, the digits model, an MLP in
static int8. gcc compiles the C as the Makefile of the target does; onnxruntime runs what the target ``onnx``
writes, and jax in a process of its own what the target ``stablehlo`` writes. They take turns. Times are processor time, so that a busy machine changes less. Each row also has the
bytes of the C text, its code, weights and arena. ``--cost`` instead times capture and writing of GPT-2 small.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tenon
from tenon import nn
from tenon.nn import functional as F

#: The most that the C may take, as a multiple of onnxruntime's time.
BARS = {"resnet18": 2.0, "gpt": 2.0, "digits": 1.0, "mlp-int8": 1.0}


class Block(nn.Module):
    """A residual block of ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)), tenon.randn(
        1, 3, 224, 224
    )


class Layer(nn.Module):
    """A layer of a GPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        parts = self.qkv(self.norm1(x)).split(c, 2)
        q, k, v = (p.view(n, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A decoder without cache: all tokens at once."""

    def __init__(self, vocabulary, width, heads, layers, positions):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(tenon.arange(tokens.shape[1]))
        return self.head(self.norm(self.layers(x)))


def gpt():
    return GPT(1000, 256, 8, 8, 128), tenon.randint(0, 1000, (1, 128))


def digits():
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10)), tenon.randn(1, 1, 8, 8)


def mlp_int8():
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    calibration = tenon.randn(64, 784)
    return tenon.quantize(model.eval(), "int8", [calibration]).model, tenon.randn(1, 784)


PROGRAMS = {"resnet18": resnet18, "gpt": gpt, "digits": digits, "mlp-int8": mlp_int8}


def written(name, folder):
    """Write a model for each runtime; return the vectors."""
    from tenon_target_c.target import CTarget
    from tenon_target_onnx.target import OnnxTarget
    from tenon_target_stablehlo.target import StableHloTarget

    tenon.manual_seed(0)
    model, example = PROGRAMS[name]()
    graph = tenon.export.capture(model.eval(), example)
    vectors = tenon.export.make_vectors(graph, [(example,)])
    for target in (CTarget(), OnnxTarget(), StableHloTarget()):
        (folder / target.name).mkdir()
        target.write(target.lowered(graph), vectors, folder / target.name)
        excess = vectors.excess(target.run(folder / target.name, [r.inputs for r in vectors.runs]))
        if excess > 1:
            raise SystemExit(f"{name}: the target {target.name} is off by {excess:.3g} tolerances")
    (folder / "inputs.bin").write_bytes(b"".join(a.tobytes() for a in vectors.runs[0].inputs))
    np.savez(folder / "inputs.npz", *vectors.runs[0].inputs)
    subprocess.run(["make", "-s", "-C", folder / "c", "test_model"], check=True)
    return vectors


def c_seconds(folder, seconds):
    """The shortest time of a run, as the program measures it."""
    command = [
        folder / "c" / "test_model",
        folder / "c" / "weights.bin",
        folder / "inputs.bin",
        "-",
        str(seconds),
    ]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def onnx_seconds(session, feed, seconds):
    """The shortest time of a run, over blocks of 20 ms as in the C program."""
    start = time.thread_time()
    session.run(None, feed)
    count = max(1, int(0.02 / max(time.thread_time() - start, 1e-6)))
    best, end = float("inf"), time.thread_time() + seconds
    while time.thread_time() < end:
        start = time.thread_time()
        for _ in range(count):
            session.run(None, feed)
        best = min(best, (time.thread_time() - start) / count)
    return best


#: Prints the shortest processor time of a run, of the whole process and thus of XLA's threads too.
XLA = """
import sys, time
import numpy as np
from model_jax import Model
model = Model()
inputs = iter(np.load(sys.argv[1]).values())
given = [next(inputs) if a["role"] == "argument" else model.state[a["name"]] for a in model.arguments]
import jax
with model.wide():
    given = [jax.device_put(a) for a in given]
    def run():
        jax.block_until_ready(model.function(*given))
    run()
    start = time.process_time()
    run()
    count = max(1, int(0.02 / max(time.process_time() - start, 1e-6)))
    best, end = float("inf"), time.process_time() + float(sys.argv[2])
    while time.process_time() < end:
        start = time.process_time()
        for _ in range(count):
            run()
        best = min(best, (time.process_time() - start) / count)
print(best)
"""


def xla_seconds(folder, seconds):
    """The shortest time of a run with XLA on one thread."""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    command = [sys.executable, "-c", XLA, folder / "inputs.npz", str(seconds)]
    done = subprocess.run(
        command, cwd=folder / "stablehlo", env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=True
    )  # fmt: skip
    return float(done.stdout)


def sizes(folder):
    """Bytes of the C text, of its code, of weights, and of the arena."""
    own = folder / "c"
    text = sum((own / name).stat().st_size for name in ("model.c", "model.h", "kernels.c", "kernels.h"))
    shown = subprocess.run(["size", own / "test_model"], capture_output=True, text=True, check=True).stdout
    code = int(shown.splitlines()[1].split()[0])
    weights = (own / "weights.bin").stat().st_size
    arena = sum(
        int(count) * {"float": 4, "double": 8, "int64_t": 8, "int32_t": 4, "int16_t": 2}.get(kind, 1)
        for kind, count in re.findall(r"^static (\w+) a_\w+\[(\d+)\]", (own / "model.c").read_text(), re.M)
    )
    return {"text": text, "code": code, "weights": weights, "arena": arena}


def measured(name, rounds, seconds):
    """Times of each runtime in turns."""
    from tenon_target_onnx.target import session_of

    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        vectors = written(name, folder)
        session = session_of(folder / "onnx" / "model.onnx")
        feed = {i.name: a for i, a in zip(session.get_inputs(), vectors.runs[0].inputs, strict=True)}
        own, other, xla = [], [], []
        for _ in range(rounds):
            own.append(c_seconds(folder, seconds))
            other.append(onnx_seconds(session, feed, seconds))
            xla.append(xla_seconds(folder, seconds))
        ratios = np.array(own) / np.array(other)
        return {
            "model": name,
            "c": min(own),
            "onnxruntime": min(other),
            "xla": min(xla),
            "ratio": min(own) / min(other),
            "median": float(np.median(ratios)),
            "bar": BARS[name],
            **sizes(folder),
        }


def cost_of_gpt2():
    """Seconds of capture and writing, and bytes of text, of GPT-2 small."""
    from tenon_target_c.target import CTarget

    model, example = GPT(50257, 768, 12, 12, 1024).eval(), tenon.randint(0, 50257, (1, 64))
    start = time.perf_counter()
    graph = tenon.export.capture(model, example)
    captured = time.perf_counter()
    with tempfile.TemporaryDirectory() as path:
        CTarget().write(graph, None, Path(path))
        done = time.perf_counter()
        text = sum(f.stat().st_size for f in Path(path).iterdir() if f.suffix in (".c", ".h"))
    return {"capture": captured - start, "write": done - captured, "text": text}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*PROGRAMS, []], help="which (default: all)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--block", type=float, default=0.5, help="seconds of a turn")
    parser.add_argument("--cost", action="store_true", help="capture and writing of GPT-2 small")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, processor time")
    if given.cost:
        found = [cost_of_gpt2()]
        print(
            "GPT-2 small: capture {capture:.1f} s, writing {write:.1f} s, C text {text:,} bytes".format(
                **found[0]
            )
        )
    else:
        found = []
        for name in given.models or PROGRAMS:
            row = measured(name, given.rounds, given.block)
            found.append(row)
            print(
                f"{name:10} C {row['c'] * 1e3:9.4f} ms  onnxruntime {row['onnxruntime'] * 1e3:9.4f} ms  XLA "
                f"{row['xla'] * 1e3:9.4f} ms  C / onnxruntime "
                f"{row['ratio']:.2f} (median {row['median']:.2f}, bar {row['bar']})  text {row['text']:,}  code "
                f"{row['code']:,}  weights {row['weights']:,}  arena {row['arena']:,} bytes",
                flush=True,
            )
    if given.json:
        Path(given.json).write_text(json.dumps({"results": found}, indent=1))


if __name__ == "__main__":
    main()
