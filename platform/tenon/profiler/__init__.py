"""``torch.profiler``: measure where a program spends time and memory. A profiling plugin provides the names.

>>> from tenon.profiler import profile, record_function
>>> with profile() as prof, record_function("nothing"):
...     pass
>>> [event.name for event in prof.events()]
['nothing']
"""

from tenon.plugins.lazy import lazy_namespace
from tenon.profiler import itt as itt
from tenon.profiler.observe.scopes import record_function as record_function

__getattr__, __dir__ = lazy_namespace(__name__, kind="profilers")
