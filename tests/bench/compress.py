"""What pruning gains: ``python tests/bench/compress.py [resnet linear digits]``, all of them without a name.

``resnet``: ResNet-18 with the stem for CIFAR, half of its channels masked and removed: latency and file, by the
receipt, which runs both in turn. ``linear``: a linear layer 1024 x 1024 of 90 % zeros, dense and packed, in turn.
``digits``: the digits net, half of its channels masked, removed, and trained for three epochs: accuracy.
"""

import argparse
import importlib.util
import json
import os
import statistics
from pathlib import Path

from turns import POOLS, clock_of, timed

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
#: Where dense layers win.
SMALL = ("sparse, batch 1", "sparse, batch 8")
#: The most that a ratio may be, or that accuracy may lose.
BARS = {"latency": 0.55, "file": 0.35, "sparse": 1.0, "accuracy": 0.01}


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=["resnet", "linear", "digits", []])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage of ResNet-18")
    parser.add_argument("--batches", default="1,8,32,128")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each model and batch size")
    parser.add_argument("--rounds", type=int, default=30, help="of the linear layers")
    parser.add_argument("--epochs", type=int, default=12, help="of the digits before they are pruned")
    parser.add_argument("--cpu-time", action="store_true", help="of the linear layers, for a busy machine")
    parser.add_argument("--json", metavar="FILE", help="write the results here too")
    return parser.parse_args()


def resnet(given):
    """Latency and file of half the channels, by all the channels."""
    import tenon

    spec = importlib.util.spec_from_file_location("resnet", MODELS / "resnet.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tenon.manual_seed(0)
    model = module.ResNet(width=given.width, classes=10)
    model.conv1 = tenon.nn.Conv2d(3, given.width, 3, 1, 1, bias=False)
    model.maxpool = tenon.nn.Identity()
    x = tenon.randn(2, 3, 32, 32)
    tenon.prune.mask_channels(model, x, 0.5, scope="layer")
    receipt = tenon.prune.compact(model, x, batch_sizes=(1, 8), seconds=given.seconds)
    found = {f"latency, batch {b}": change.ratio for b, change in receipt[""].seconds.items()}
    return {**found, "file": receipt[""].bytes.ratio, "output change": receipt.output_change}


def linear(given):
    """Seconds of a packed layer by those of a dense one, at several batch sizes."""
    import tenon

    tenon.manual_seed(0)
    layer, clock, found = tenon.nn.Linear(1024, 1024), clock_of(given.cpu_time), {}
    tenon.prune.mask_weights(layer, 0.9)
    tenon.nn.utils.prune.remove(layer, "weight")
    packed = tenon.prune.PackedLinear.of(layer)
    for batch in map(int, given.batches.split(",")):
        x, ratios = tenon.randn(batch, 1024), []
        with tenon.no_grad():
            for _ in range(given.rounds):
                dense, sparse = (timed(lambda m=m, x=x: m(x), 20, clock) for m in (layer, packed))
                ratios.append(sparse / dense)
        found[f"sparse, batch {batch}"] = statistics.median(ratios)
    return found


def fit(model, data, epochs, lr):
    """Train on the digits."""
    import tenon

    images, labels = data.train.tensors
    optimizer = tenon.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
    for _ in range(epochs):
        model.train()
        for rows in tenon.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            tenon.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    with tenon.no_grad():
        images, labels = data.test.tensors
        return float((model.eval()(images).argmax(1) == labels).float().mean())


def digits(given):
    """Accuracy before pruning, and what half the channels lose after three epochs of training."""
    import tenon
    from tenon_recipes.digits import DigitsNet, load

    tenon.manual_seed(0)
    data, model = load(), DigitsNet()
    before = fit(model, data, given.epochs, 3e-3)
    x = data.train.tensors[0][:2]
    tenon.prune.mask_channels(model, x, 0.5, scope="layer")
    tenon.prune.compact(model, x, seconds=0)
    after = fit(model, data, 3, 1e-3)
    return {"accuracy before": before, "accuracy after": after, "accuracy": before - after}


def main():
    given = arguments()
    for pool in POOLS:
        os.environ[pool] = str(given.threads)
    found = {}
    for run in (resnet, linear, digits):
        if not given.what or run.__name__ in given.what:
            found.update(run(given))
    print(f"threads {given.threads}, load {os.getloadavg()[0]:.1f}")
    for name, value in found.items():
        bar = None if name in SMALL else BARS.get(name.partition(",")[0])
        print(f"{name:<20} {value:8.4f}" + ("" if bar is None else f"   at most {bar}"))
    if given.json:
        Path(given.json).write_text(json.dumps({"threads": given.threads, "results": found}, indent=1))


if __name__ == "__main__":
    main()
