"""Fixtures for all tests: running a program with tenon and with real torch, and comparing the results."""

from __future__ import annotations

import copy
import functools
import gc
import importlib.util
import inspect
import itertools
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdist.scheduler import LoadFileScheduling

import tenon
from tenon.compat import rerouting
from tenon.testing.suites.communicator import OPEN_MPI

#: Exceptions that torch and tenon may distinguish by different subclasses.
_FAMILIES = (IndexError, TypeError, NotImplementedError, ValueError, RuntimeError)

#: Folders whose tests mostly start ranks.
RANKS = ("tests/distributed/", "tests/training/")
#: Those in them that start none.
ALONE = tuple(f"tests/training/test_{name}.py" for name in ("compress", "compressing_guide", "config"))
#: Files whose tests share one browser.
BROWSER = tuple(f"tests/dashboard/test_{name}.py" for name in ("access", "browser", "stock_tabs"))


# Unbuffered, print() writes a text and its newline apart, and the lines of several ranks mix.
os.environ.pop("PYTHONUNBUFFERED", None)
os.environ.update(OPEN_MPI)

# Threads of one worker that wait for their next piece in a loop take the core of the other: a sixth of the time.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# Some hundred ranks start, and each would compile the library's source anew for 0.4 s; a folder of byte code for
# this run alone would take that of all installed packages as well, 30 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", "")

# A shell without job control starts what is in the background with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # absent under `-p no:xdist`
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers for folders; none for single files, and for other choices by marker: those may be timed."""
    shared = _folders(config) and config.option.markexpr in ("", "slow")
    return 2 if shared and (os.cpu_count() or 1) > 1 else 0


def _folders(config: pytest.Config) -> bool:
    return all(Path(argument).is_dir() for argument in config.args)


class RanksInOneWorker(LoadFileScheduling):
    """Whole files to either worker; all that start ranks to one, at once: side by side they take 4 times as
    long, and what is left at the end should be short. All that look into a browser to one, which starts once."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(BROWSER):
            return "browser"
        ranks = nodeid.startswith(RANKS) and not nodeid.startswith(ALONE)
        return "ranks" if ranks else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if "ranks" in self.workqueue:
            self.workqueue.move_to_end("ranks", last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        """A crashed worker's test has failed and is not run again; what else the worker was given is.

        xdist hands out that test anew, for which the next worker crashes, and files that are done as well: a
        worker that gets such a file alone has nothing to report, and nobody tells it to go on or to end.
        """
        work = self.assigned_work.pop(node)
        left = [(tests, test) for tests in work.values() for test, done in tests.items() if not done]
        if not left:
            return None
        tests, crashed = left[0]
        tests[crashed] = True
        self.workqueue.update({scope: tests for scope, tests in work.items() if not all(tests.values())})
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: Any) -> None:
        """More for a worker that has less than two tests: it begins the last one when told what comes next."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)  # absent under `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> RanksInOneWorker:
    """The only one here."""
    return RanksInOneWorker(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let two workers share what both would do for 10 s in a fresh clone: to compile the tests, with their asserts
    rewritten. Each begins at another end, and goes on until it meets what the other has done."""
    worker = getattr(session.config, "workerinput", {}).get("workerid")
    if worker not in ("gw0", "gw1") or sys.dont_write_bytecode:
        return
    folders = [Path(argument).resolve() for argument in session.config.args if Path(argument).is_dir()]
    if worker == "gw1" and Path(__file__).parent in folders and importlib.util.find_spec("torch"):
        importlib.import_module("torch")  # 2,000 files, which not every installer compiles
    tests = sorted({path for folder in folders for path in folder.rglob("test_*.py")})
    for path in tests if worker == "gw0" else reversed(tests):
        try:
            _compile(path, session.config)
        except (
            AttributeError,
            ImportError,
            SyntaxError,
        ):  # other names in pytest, or a mistake: pytest tells of it
            continue


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Let workers send no reports of setups and teardowns that passed, which nobody shows: a third of what xdist
    costs, 2 ms a test in two processes."""
    options, workers = session.config.option, session.config.pluginmanager.get_plugins()
    if options.durations is None and not options.xmlpath:
        for worker in workers:
            if type(worker).__name__ == "WorkerInteractor" and hasattr(worker, "sendevent"):
                worker.sendevent = functools.partial(_send_shown, worker.sendevent)


def _send_shown(send: Callable[..., None], name: str, **content: Any) -> None:
    report = content["data"] if name == "testreport" else {}
    passed = report.get("outcome") == "passed" and report.get("when") != "call"
    if name != "logstart" and not (passed and not report["sections"]):
        send(name, **content)


def _compile(path: Path, config: pytest.Config) -> None:
    from _pytest.assertion import rewrite  # private: what it lacks costs time only

    folder = rewrite.get_cache_dir(path)
    compiled = folder / (path.stem + rewrite.PYC_TAIL)
    if not compiled.exists() and rewrite.try_makedirs(folder):
        source, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, compiled)


@pytest.hookimpl(trylast=True)
def pytest_collectstart() -> None:
    """Keep Hypothesis from reading the numbers and texts in the source of every module that is imported.

    It mixes them into what it draws: parsing takes 7 s in a fresh clone, and what a test draws would depend on
    the tests that were collected together with it.
    """
    # A private module: under another version without the function, the collection only takes longer.
    providers = sys.modules.get("hypothesis.internal.conjecture.providers")
    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants = lambda: providers._local_constants


class Cases:
    """What a test marked ``together`` gets for a parameter, or for several of one ``parametrize``: all values."""

    def __init__(self, names: Any, values: Any, ids: Any = None) -> None:
        self.names = [n.strip() for n in names.split(",")] if isinstance(names, str) else [*names]
        single = len(self.names) == 1
        self.params = [v if isinstance(v, _PARAM) else pytest.param(*((v,) if single else v)) for v in values]
        labels = [None] * len(self.params) if ids is None or callable(ids) else [*ids]
        label = ids if callable(ids) else str
        self.ids = [
            param.id or given or "-".join(str(label(value) or value) for value in param.values)
            for param, given in zip(self.params, labels, strict=True)
        ]

    def by_marks(self) -> Iterator[Any]:
        """Themselves as parameters of a test, those with other marks apart."""
        groups: dict[str, list[int]] = {}
        for at, param in enumerate(self.params):
            groups.setdefault(repr(param.marks), []).append(at)
        for kept in groups.values():
            some = copy.copy(self)
            some.params, some.ids = [self.params[i] for i in kept], [self.ids[i] for i in kept]
            marks = some.params[0].marks
            some_ids = "-".join([f"{len(kept)} cases", *(mark.name for mark in marks)])
            yield pytest.param(*[some] * len(self.names), marks=marks, id=some_ids)

    def each(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The name of each case, and its arguments."""
        for name, param in zip(self.ids, self.params, strict=True):
            yield name, dict(zip(self.names, param.values, strict=True))


_PARAM = type(pytest.param())
#: Fixtures that undo or collect what one test did: its cases stay apart.
_UNDONE_AFTERWARDS = frozenset({"capfd", "capsys", "monkeypatch", "recwarn", "tmp_path"})


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test of what is ``together``, which costs 3 ms less a case; one of each case where a file is named or ``-k``."""
    definition, config = metafunc.definition, metafunc.config
    if definition.get_closest_marker("together") is None or not _folders(config) or config.option.keyword:
        return
    if not _UNDONE_AFTERWARDS.isdisjoint(metafunc.fixturenames):
        return
    marks = [mark for mark in definition.own_markers if mark.name == "parametrize"]
    definition.own_markers[:] = [mark for mark in definition.own_markers if mark.name != "parametrize"]
    for mark in marks:
        cases = Cases(*mark.args, **mark.kwargs)
        metafunc.parametrize(cases.names, [*cases.by_marks()])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run all cases of what is ``together``, and name each that fails."""
    several = {id(value): value for value in pyfuncitem.funcargs.values() if isinstance(value, Cases)}
    if not several:
        return None
    parameters = inspect.signature(pyfuncitem.obj).parameters  # some have defaults and are nobody's fixture
    given = {name: pyfuncitem.funcargs[name] for name in parameters if name in pyfuncitem.funcargs}
    failed: list[BaseException] = []
    names: list[str] = []
    ran, skipped = 0, []
    for case in itertools.product(*(cases.each() for cases in several.values())):
        name = "-".join(name for name, _ in case)
        arguments = given | {key: value for _, values in case for key, value in values.items()}
        try:
            pyfuncitem.obj(**{key: _own(value) for key, value in arguments.items()})
            ran += 1
        except pytest.skip.Exception as error:
            skipped.append(error)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(
                f"Case {name!r}; each case is a test where its file is named: pytest {pyfuncitem.path}"
            )
            failed.append(error)
            names.append(name)
    if skipped and (ran or failed):
        of = ran + len(failed) + len(skipped)
        pyfuncitem.user_properties.append((_SKIPPED, f"{len(skipped)} of {of} cases: {skipped[-1]}"))
    if len(failed) > 1:
        rest = f", also {', '.join(names[_SHOWN:])}" if names[_SHOWN:] else ""
        raise BaseExceptionGroup(f"{len(failed)} of {ran + len(failed)} cases failed{rest}", failed[:_SHOWN])
    if failed:
        raise failed[0]
    if skipped and not ran:
        raise skipped[-1]
    return True


def _own(value: Any) -> Any:
    """What a case gets of an argument: numbers that do not depend on the cases before it."""
    return copy.deepcopy(value) if isinstance(value, np.random.Generator) else value


_SKIPPED = "skipped cases"
_SHOWN = 15  # pytest prints so many of a group of errors


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests ran some of their cases only: pytest reports skips of whole tests."""
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        for name, text in getattr(report, "user_properties", ()):
            if name == _SKIPPED and report.when == "call":
                terminalreporter.write_line(f"SKIPPED {report.nodeid}: {text}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``manual``, and of folders what is ``slow``, unless ``-m`` names the marker."""
    names = {"manual", "slow"} if _folders(config) else {"manual"}
    names = {name for name in names if name not in config.option.markexpr}
    left_out = [item for item in items if any(mark.name in names for mark in item.iter_markers())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        known = set(left_out)
        items[:] = [item for item in items if item not in known]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip comparisons of seeded numbers where PyTorch computes without AVX2: it draws others there."""
    if item.get_closest_marker("draws") and importlib.util.find_spec("torch") and _torch_without_avx2():
        pytest.skip("PyTorch draws other numbers without AVX2")


@functools.cache
def _torch_without_avx2() -> bool:
    return bool(importlib.import_module("torch").backends.cpu.get_cpu_capability() == "DEFAULT")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let no collection of garbage look at 30,000 collected tests again: compiling ends with one, 0.3 s each.

    PyTorch computes small things here, and its threads would keep a core while they wait for each other.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
        _seed_what_there_is(sys.modules["torch"])
    if "tenon_compress.receipt" in sys.modules:
        # Wherever a model is made smaller, a receipt would time it and what it was for 0.6 s: five runs do.
        sys.modules["tenon_compress.receipt"].receipt_of.__kwdefaults__["seconds"] = 0.0
    _freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let Hypothesis add nothing to the summary where no test used it: for that it would be imported, for 0.6 s."""
    plugins = session.config.pluginmanager
    if "hypothesis" not in sys.modules and not plugins.has_plugin("dsession"):
        plugins.unregister(name="hypothesispytest")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Nor at what a file's tests imported: torch's and numba's modules alone cost 0.5 s a collection."""
    yield
    rerouting.restore_all()  # classes that a test derived from Tensor slow no later one, some of which measure
    if nextitem is not None and nextitem.path != item.path:
        _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _seed_what_there_is(torch: Any) -> None:
    """Let ``torch.manual_seed`` pass by kinds of devices that are not there.

    It would keep three formatted stacks for later at each call: 5 ms of ours, some ten thousand times.
    """
    for kind in (torch.cuda, torch.xpu, torch.mtia):
        if not kind.is_available():
            kind.manual_seed_all = lambda seed: None


def _outcome(program: Callable[[Any], Any], library: Any) -> tuple[str, Any]:
    try:
        return "value", program(library)
    except _FAMILIES as error:
        return "error", error


def _compare(ours: Any, theirs: Any, where: str) -> None:
    if hasattr(theirs, "detach"):
        assert hasattr(ours, "detach"), f"{where}: {ours!r} is not a tensor"
        assert str(ours.dtype) == str(theirs.dtype), f"{where}: dtype {ours.dtype}, torch has {theirs.dtype}"
        assert tuple(ours.shape) == tuple(theirs.shape), (
            f"{where}: shape {ours.shape}, torch has {theirs.shape}"
        )
        assert ours.requires_grad == theirs.requires_grad, f"{where}: requires_grad {ours.requires_grad}"
        if str(ours.dtype) == "torch.bfloat16":
            ours, theirs = ours.float(), theirs.float()
        a, b = np.asarray(ours.detach().numpy()), theirs.detach().resolve_conj().numpy()
        tolerance = {"float16": 2e-3, "float32": 1e-5, "complex64": 1e-5}.get(str(b.dtype), 1e-12)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=where)
    elif isinstance(theirs, Mapping):
        assert set(ours) == set(theirs), where
        for key in theirs:
            _compare(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), f"{where}: {ours!r} against {theirs!r}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            _compare(a, b, f"{where}[{i}]")
    elif isinstance(theirs, float) and math.isnan(theirs):
        assert math.isnan(ours), where
    elif isinstance(theirs, (float, complex)):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-7), where
    else:
        assert str(ours) == str(theirs), f"{where}: {ours!r}, torch has {theirs!r}"


@pytest.fixture
def parity() -> Callable[..., None]:
    """``parity(program)``: ``program(tenon)`` and ``program(torch)`` return the same, or both raise.

    Errors agree if they are of one built-in family; ``match`` must be found in both messages.
    """
    torch = pytest.importorskip("torch")

    def check(program: Callable[[Any], Any], match: str | None = None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind, theirs = _outcome(program, torch)
        own, ours = _outcome(program, tenon)
        if kind == "error":
            assert own == "error", f"torch raises {theirs!r}, tenon returns {ours!r}"
            family = next(f for f in _FAMILIES if isinstance(theirs, f))
            assert isinstance(ours, family), f"torch raises {theirs!r}, tenon {ours!r}"
            if match is not None:
                assert re.search(match, str(theirs)), f"torch says {theirs}"
                assert re.search(match, str(ours)), f"tenon says {ours}"
            return
        if own == "error":
            raise ours
        assert match is None, f"both return {ours!r}; an error was expected"
        _compare(ours, theirs, "result")

    return check
