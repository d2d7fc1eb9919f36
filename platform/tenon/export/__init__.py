"""Export: capture a model or a training step as a graph, transform it, and write it for other machines.

>>> import tenon
>>> model = tenon.nn.Sequential(tenon.nn.Linear(4, 2), tenon.nn.ReLU()).eval()
>>> graph = tenon.export.capture(model, tenon.ones(1, 4))
>>> [node.name for node in graph.calls]
['linear', 'relu']
>>> tuple(graph.run(tenon.zeros(1, 4)).shape)
(1, 2)

``capture.py`` records, ``captured.py`` is the result, ``lowering.py`` rewrites it in the ops of a target,
``bundle.py`` writes and reads folders, ``verify.py`` runs them on their test vectors. PyTorch's
``torch.export`` is ``exported_program.py``; ``save`` and ``load`` take a program or the folder of a bundle.
"""

from tenon.export.bundle import Bundle
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph, Guard, Symbol
from tenon.export.compiled_runner import CompiledRunner
from tenon.export.dim import Dim, dims
from tenon.export.exported_program import ExportedProgram, export, unflatten
from tenon.export.files import load, save
from tenon.export.graph_signature import ExportGraphSignature
from tenon.export.lowering import lower
from tenon.export.runner import Runner
from tenon.export.signature import ScalarInput, Signature
from tenon.export.target import Target
from tenon.export.vectors import Run, Vectors, make_vectors
from tenon.export.verify import Report, Verdict, verify
from tenon.tensors.pytree import register_dataclass

__all__ = [
    "Bundle",
    "CapturedGraph",
    "CompiledRunner",
    "Dim",
    "ExportGraphSignature",
    "ExportedProgram",
    "Guard",
    "Report",
    "Run",
    "Runner",
    "ScalarInput",
    "Signature",
    "Symbol",
    "Target",
    "Vectors",
    "Verdict",
    "capture",
    "dims",
    "export",
    "load",
    "lower",
    "make_vectors",
    "register_dataclass",
    "save",
    "unflatten",
    "verify",
]
