"""PyTorch's ``torch.jit.trace`` and its files, on captured graphs; ``tenon.jit`` exports the names of this
package.

>>> import io, tenon
>>> model = tenon.nn.Sequential(tenon.nn.Linear(4, 2), tenon.nn.ReLU()).eval()
>>> traced = trace(model, tenon.ones(1, 4))
>>> file = io.BytesIO()
>>> traced.save(file)
>>> restored = load(io.BytesIO(file.getvalue()))
>>> bool((restored(tenon.ones(3, 4)) == model(tenon.ones(3, 4))).all())
True

``tracing.py`` is ``trace``; ``recorder.py`` records, ``free_sizes.py`` finds the sizes that may change,
``program.py`` writes a graph as Python, ``script_module.py`` has the classes of what is returned,
``checking.py`` compares it with the function,
``content.py`` defines the content of files and writes them, ``restore.py`` reads them.
"""

from tenon.export.jit.checking import TracingCheckError
from tenon.export.jit.content import save
from tenon.export.jit.freezing import freeze, optimize_for_inference
from tenon.export.jit.recorder import TracerWarning, is_tracing
from tenon.export.jit.restore import load
from tenon.export.jit.script_function import ScriptFunction
from tenon.export.jit.script_module import (
    RecursiveScriptModule,
    ScriptModule,
    TopLevelTracedModule,
    TracedModule,
)
from tenon.export.jit.tracing import trace, trace_module

__all__ = [
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracedModule",
    "TracerWarning",
    "TracingCheckError",
    "freeze",
    "is_tracing",
    "load",
    "optimize_for_inference",
    "save",
    "trace",
    "trace_module",
]
