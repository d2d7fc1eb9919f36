"""Conformance of export targets: subclass, name the target, and pytest exports every model to it.

::

    class TestMyTarget(TargetSuite):
        target = "mine"
        trains = True  # it writes training steps too

Every model of ``target_models.py`` is written to a bundle and verified on vectors that the model computed. If
nothing can be run on this machine, those tests are skipped with the target's reason.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tenon import nn, optim
from tenon.engine.op import table
from tenon.engine.types import Nested
from tenon.errors import BundleError, LoweringError, TenonError
from tenon.export import schema
from tenon.export.bundle import Bundle, load, save, target_named
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph
from tenon.export.target import Target
from tenon.export.verify import verify
from tenon.functions.joining import cat
from tenon.nn import functional as F
from tenon.nn.module import Module
from tenon.nn.utils import clip_grad_norm_
from tenon.optim.optimizer import Optimizer
from tenon.plugins import registry
from tenon.random.generator import manual_seed
from tenon.tensors.creation.create import wrap
from tenon.tensors.creation.factories import eye, full
from tenon.tensors.creation.random_factories import randint, randn
from tenon.tensors.creation.ranges import arange, linspace
from tenon.tensors.tensor import Tensor
from tenon.testing.suites.target_models import MODELS, Digits

#: Ends strings and comments of several languages, and goes on with code.
_ODD_TEXT = ' \'\'\'; """; import nonesuch; */ nonesuch(); /* \\" %s %n {x} \\ ??/ '


class TargetSuite:
    """Checks of ``target``: the name of a plugin's target, or a class."""

    #: The target under test.
    target: ClassVar[str | type[Target]] = ""
    #: Whether it writes training steps.
    trains: ClassVar[bool] = False
    #: Whether it writes models that compute in 8-bit integers.
    integers: ClassVar[bool] = True
    #: Models that it cannot write, with the reason.
    missing: ClassVar[Mapping[str, str]] = {}

    def made(self) -> Target:
        """Return the target."""
        return self.target() if isinstance(self.target, type) else target_named(self.target)

    def runnable(self) -> Target:
        """Return the target; skip the test if nothing can be run here."""
        target = self.made()
        reason = target.unavailable()
        if reason is not None:
            pytest.skip(reason)
        return target

    def exported(
        self, tmp_path: Path, graph: CapturedGraph, calls: Sequence[Sequence[Nested]] | None = None
    ) -> Bundle:
        """Write a bundle for the target, verify it, and return it."""
        target = self.runnable()
        folder = save(graph, tmp_path / "bundle", targets=[target], calls=calls)
        report = verify(folder, found=[target])
        assert [verdict.target for verdict in report.verdicts] == ["graph", target.name]
        assert report.passed, [f"{v.target} {v.status}: {v.reason}" for v in report.verdicts]
        return load(folder)

    @pytest.mark.parametrize("name", MODELS)
    def test_model(self, name: str, tmp_path: Path) -> None:
        """Every model computes its own outputs."""
        if name in self.missing:
            pytest.skip(self.missing[name])
        manual_seed(0)
        example = MODELS[name]()

        self.exported(tmp_path, capture(example.model, *example.args), example.calls)

    def test_one_sample(self, tmp_path: Path) -> None:
        """A batch of one: axes of size 1 broadcast where others do not."""
        manual_seed(1)
        for name in ("digits", "gpt"):
            example = MODELS[name]()
            args = tuple(x[:1] for x in example.args)
            self.exported(tmp_path / name, capture(example.model, *args), [args])

    def test_an_empty_batch_gives_results_without_elements(self, tmp_path: Path) -> None:
        """A free batch may be 0: sums over it are 0, and means NaN."""
        target = self.runnable()
        if not target.dynamic:
            pytest.skip("the target writes fixed sizes only")
        manual_seed(0)
        convolution = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2))
        lstm, gru = nn.LSTM(4, 3, batch_first=True), nn.GRU(4, 3)

        def function(x: Tensor) -> tuple[Tensor, ...]:
            y = convolution(x)
            states, (last, _) = lstm(y.transpose(1, 2))
            rows, _ = gru(y.permute(2, 0, 1))
            best = F.softmax(rows[-1], 1).topk(2, 1)[1]
            whole = y.sum(0), y.mean(0), (y > 0).any(0), y.gather(1, y[:, :1].long())
            return states, last, rows, best, *whole, y.roll(1, 0), y.tril(), y * y.numel()

        graph = capture(function, randn(3, 2, 6), dynamic={"x": {0: "batch"}})
        graph.symbols["batch"] = graph.symbols["batch"].bounded(0, 4)
        runs = [randn(size, 2, 6) for size in (0, 1, 4)]

        folder = save(graph, tmp_path / "bundle", targets=[target], calls=[(x,) for x in runs[1:]])
        results = target.run(folder / target.name, [[x.numpy()] for x in runs])

        for x, arrays in zip(runs, results, strict=True):
            expected = [each.detach().numpy() for each in function(x)]
            assert [(a.shape, a.dtype) for a in arrays] == [(e.shape, e.dtype) for e in expected]
            for own, other in zip(arrays, expected, strict=True):
                np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)

    def test_sizes_as_numbers(self, tmp_path: Path) -> None:
        """Sizes that may change in arithmetic and statistics, and what moves elements along such axes."""
        target = self.runnable()
        if not target.dynamic:
            pytest.skip("the target writes fixed sizes only")

        row = nn.Parameter(randn(1, 2), requires_grad=False)

        def function(x: Tensor) -> tuple[Tensor, ...]:
            n, whole = x.shape[0], (x * 10).long()
            statistics = x.var(0), x.std((0, 1)), x.var(0, correction=0), x.sum(0) / n
            numbers = x * x.numel(), n - x, x.abs() ** n, x.clamp(max=n - 2), x > n, whole * n, whole // n
            moved = (
                x.roll((3, -1), (0, 1)),
                x.roll(n // 2, 0),
                x.roll(5),
                x.tril(),
                (x @ x.t()).triu(1),
            )
            created = eye(n) @ x, linspace(-1, n / 3, n), full((n, 2), n), arange(n - 1, -1, -1), x > n // 2
            return *statistics, *numbers, *moved, *created, cat([row.expand(n, -1), x], 1)

        manual_seed(0)
        graph = capture(function, randn(3, 4), dynamic={"x": {0: "batch"}})
        graph.symbols["batch"] = graph.symbols["batch"].bounded(2, 8)
        runs = [randn(size, 4) for size in (2, 5, 8)]

        folder = save(graph, tmp_path / "bundle", targets=[target], calls=[(runs[-1],)])
        results = target.run(folder / target.name, [[x.numpy()] for x in runs])

        for x, arrays in zip(runs, results, strict=True):
            for own, other in zip(arrays, function(x), strict=True):
                np.testing.assert_allclose(own, other.numpy(), rtol=1e-4, atol=1e-5)

    def test_arguments_and_results_in_nests(self, tmp_path: Path) -> None:
        """Nested containers, plain values, other dtypes, scalars and empty arrays, as arguments and
        results."""
        weight = nn.Parameter(randn(()))  # without axes

        def function(batch: dict[str, Tensor], many: list[Tensor], power: int) -> dict[str, object]:
            x, count = batch["x"], many[0]
            y = (x * weight + count) ** power
            return {
                "again": x, "y": y, "twice": (y, y), "positive": y > 0, "whole": count * 2, "none": None,
                "weight": weight, "total": y.sum(), "empty": many[1] * 2.0, "number": 3,
            }  # fmt: skip

        manual_seed(2)
        calls = [
            ({"x": randn(3, 4).t() * factor}, [randint(0, 9, (3,)), randn(0, 3)], 2) for factor in (1.0, 5.0)
        ]
        bundle = self.exported(tmp_path, capture(function, *calls[0]), calls)

        result = bundle.graph.run(*calls[1])
        assert result["number"] == 3 and result["none"] is None

    def test_names_of_any_text_are_only_names(self, tmp_path: Path) -> None:
        """Names and places of a graph that somebody else wrote do not become code."""
        manual_seed(0)
        document, arrays = schema.to_document(capture(nn.Linear(4, 3), randn(2, 4)))
        for node in document["nodes"]:
            if node["kind"] == "input":
                node["name"] += _ODD_TEXT
            else:
                node |= dict.fromkeys(("module", "where", "phase"), _ODD_TEXT)
        document["signature"]["arguments"] = [{"tensor": document["nodes"][0]["name"]}]
        stored = {name + _ODD_TEXT: wrap(array, device="cpu") for name, array in arrays.items()}

        self.exported(tmp_path, schema.from_document(document, stored, "graph.json"), [(randn(2, 4),)])

    def test_pruned_and_compacted_model(self, tmp_path: Path) -> None:
        """A model with masks, and the compacted model."""
        manual_seed(0)
        example = MODELS["digits"]()
        prune = registry.resolve("namespaces", "prune")
        prune.mask_channels(example.model, example.args[0], 0.5)
        self.exported(tmp_path / "masked", capture(example.model, *example.args))
        prune.compact(example.model, example.args[0], seconds=0.01)

        self.exported(tmp_path / "compacted", capture(example.model, *example.args))

    @pytest.mark.parametrize(
        "scheme",
        ["int8", "int8-dynamic", "int8-weights", pytest.param("int4-weights", marks=pytest.mark.slow)],
    )
    def test_quantized_model(self, scheme: str, tmp_path: Path) -> None:
        """Models in 8-bit integers, within one quantization step."""
        if not self.integers:
            pytest.skip("the target has no 8-bit integers")
        manual_seed(0)
        example = MODELS["digits"]()
        quantization = registry.resolve("namespaces", "quantization")
        small = quantization.quantize(example.model, scheme, [example.args[0]]).model

        odd = example.args[0].clone()
        odd[0, :, 1], odd[1, :, 0], odd[1, :, 1] = math.nan, math.inf, -1e30  # saturate, or make all NaN
        self.exported(tmp_path, capture(small, *example.args), [example.args, (odd,)])

    def test_training_steps(self, tmp_path: Path) -> None:
        """Ten steps of an MLP with Adam, of a convolutional net with momentum, and with weight decay.

        Gradients are clipped.
        """
        if not self.trains:
            pytest.skip("the target writes no training steps")
        manual_seed(0)
        mlp: Module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 10))
        convolutional = Digits()
        convolutional.classifier[1].p = 0.0
        decayed = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 10))
        plain = nn.Linear(6, 10)
        cases: list[tuple[Module, Optimizer, tuple[int, ...]]] = [
            (decayed, optim.AdamW(decayed.parameters(), lr=0.01, weight_decay=0.1), (6,)),
            (
                plain,
                optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
                (6,),
            ),
            (mlp, optim.Adam(mlp.parameters(), lr=0.01), (6,)),
            (
                convolutional,
                optim.SGD(convolutional.parameters(), lr=0.05, momentum=0.9),
                (1, 8, 8),
            ),
        ]
        for number, (model, optimizer, shape) in enumerate(cases):
            calls = [(randn(4, *shape), randint(0, 10, (4,))) for _ in range(10)]
            graph = capture(_step_of(model, optimizer), *calls[0], train=True)

            target = self.runnable()
            folder = save(graph, tmp_path / str(number), targets=[target], calls=calls, tolerance=1e-4)
            report = verify(folder, found=[target])
            assert report.passed, [f"{v.target} {v.status}: {v.reason}" for v in report.verdicts]

    def test_missing_ops_are_named_at_once_and_nothing_is_written(self, tmp_path: Path) -> None:
        """All ops that the target lacks are in one error."""
        target = self.made()
        candidates: dict[str, Callable[[Tensor], Tensor]] = {
            "lgamma": table.lgamma,
            "digamma": table.digamma,
            "cummax": lambda x: x.cummax(1)[0],
            "sort": lambda x: x.sort(1)[0],
            "erfinv": table.erfinv,
            "i0": table.i0,
            "bessel_j0": table.bessel_j0,
        }
        lacking = [f for name, f in candidates.items() if name not in target.ops]

        def function(x: Tensor) -> tuple[Tensor, ...]:
            return tuple(f(x) for f in lacking)

        graph = capture(function, randn(2, 3).clamp(-0.9, 0.9))
        names = {node.name for node in graph.calls} - set(target.ops) - {"clamp"}

        with pytest.raises(LoweringError) as caught:
            save(graph, tmp_path / "bundle", targets=[target])

        assert sum(name in str(caught.value) for name in names) >= min(2, len(names))
        assert list(tmp_path.iterdir()) == []

    def test_wrong_arguments_are_a_clear_error(self, tmp_path: Path) -> None:
        """Another shape or dtype is named, never computed with; another byte order is one, or converted."""
        target = self.runnable()
        manual_seed(0)
        example = MODELS["net"]()
        bundle = self.exported(tmp_path, capture(example.model, *example.args))
        right = bundle.vectors.runs[0].inputs[0]

        for wrong in (right[:, :3], right[None], right.astype(np.int64)):
            with pytest.raises(TenonError):
                target.run(bundle.folder / target.name, [[np.ascontiguousarray(wrong)]])
        swapped = right.astype(right.dtype.newbyteorder())
        try:
            results = target.run(bundle.folder / target.name, [[swapped]])
        except TenonError:
            return
        assert bundle.vectors.excess(results) <= 1

    def test_changed_and_missing_files_are_refused_by_name(self, tmp_path: Path) -> None:
        """Every file of the target is covered by a checksum."""
        manual_seed(0)
        example = MODELS["net"]()
        bundle = self.exported(tmp_path, capture(example.model, *example.args))
        files = bundle.targets[self.made().name]

        assert files
        for name in files:
            path = bundle.folder / name
            content = path.read_bytes()
            path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
            with pytest.raises(BundleError, match=Path(name).name):
                load(bundle.folder)
            path.unlink()
            with pytest.raises(BundleError, match=f"{Path(name).name} is missing"):
                load(bundle.folder)
            path.write_bytes(content)

    def test_the_same_graph_gives_the_same_files(self, tmp_path: Path) -> None:
        """What is written depends on the graph alone."""
        manual_seed(0)
        example = MODELS["digits"]()
        graph = capture(example.model, *example.args)
        digests = []

        for number in range(2):
            folder = save(graph, tmp_path / str(number), targets=[self.made()])
            files = sorted(p for p in folder.rglob("*") if p.is_file())
            digests.append([(p.name, hashlib.sha256(p.read_bytes()).hexdigest()) for p in files])

        assert digests[0] == digests[1]


def _step_of(model: Module, optimizer: Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a training step of a classifier."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step
