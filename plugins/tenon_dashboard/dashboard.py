"""The TensorBoard plugin: routes for the files of the dashboard and for the data of each view.

No text of a request becomes part of a path: runs, views and files are looked up by name in tables. Responses
are JSON or the package's own files, and no browser may treat them as pages (``nosniff``, a policy without
sources).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tensorboard.plugins import base_plugin  # type: ignore[import-untyped]
from werkzeug import Request, Response

from tenon_dashboard import views
from tenon_dashboard.collect import JsonObject
from tenon_dashboard.readers import Readers, Reading
from tenon_dashboard.runs import Run, Runs
from tenon_dashboard.tracing import search, span_detail, window

_STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'",
    "Cache-Control": "no-cache",
}
#: Seconds that a response waits for files that are being read before it reports their progress.
PATIENCE = 0.8
#: A WSGI application, of which werkzeug's decorator leaves no more precise type.
Application: TypeAlias = Callable[..., Any]
_VIEWS: Mapping[str, Callable[[views.Ranks], JsonObject]] = {
    "overview": views.overview,
    "operators": views.operators,
    "modules": views.modules,
    "memory": views.memory,
    "kernels": views.kernels,
    "distributed": views.distributed,
}


class Refused(ValueError):
    """A request for something that does not exist; the message is shown."""


class Dashboard(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab "tenon" of TensorBoard."""

    plugin_name = "tenon"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._runs = Runs(context.logdir)
        self._readers = Readers()

    def get_plugin_apps(self) -> dict[str, Application]:
        """Return the routes, below ``/data/plugin/tenon``."""
        files = {f"/static/{path.name}": _file(path) for path in _STATIC.iterdir() if path.suffix in _TYPES}
        answers = {"/runs": self._list, "/view": self._view, "/trace": self._trace}
        answers |= {"/search": self._search, "/span": self._span}
        return files | {route: Request.application(_checked(answer)) for route, answer in answers.items()}

    def is_active(self) -> bool:
        """Whether there is a trace to show."""
        active = bool(self._runs.all())
        if active:
            self._readers.warm()
        return active

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the JavaScript module that draws the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="tenon")

    def close(self) -> None:
        """End the processes that read files, which also end with TensorBoard."""
        self._readers.close()

    def _list(self, request: Request) -> Response:
        runs = [{"name": run.name, "ranks": [f.rank for f in run.files]} for run in self._runs.all().values()]
        return _json(request, {"runs": runs})

    def _run(self, request: Request) -> Run:
        name = request.args.get("run", "")
        run = self._runs.all().get(name)
        if run is None:
            raise Refused(f"No run of this name has a trace: {name[:200]!r}")
        return run

    def _files(self, run: Run) -> list[tuple[int, Reading]]:
        """Return the reading of each rank, as far as it has come after a short wait."""
        readings = self._readers.get([file.path for file in run.files], PATIENCE)
        return [(file.rank, reading) for file, reading in zip(run.files, readings, strict=True)]

    def _view(self, request: Request) -> Response:
        name = request.args.get("view", "")
        make = _VIEWS.get(name)
        if make is None:
            raise Refused(f"No such view: {name[:50]!r}")
        files = self._files(self._run(request))
        digests = {rank: reading.digest for rank, reading in files if reading.digest is not None}
        ranks = views.on_one_clock(digests)
        only = request.args.get("rank", "all")
        view = make({rank: ranks[rank] for rank in ranks if only in ("all", str(rank))})
        return _json(request, {**view, "files": _states(files), "known": sorted(ranks)})

    def _trace(self, request: Request) -> Response:
        files = self._files(self._run(request))
        begin, end = _integer(request, "begin", 0), _integer(request, "end", 0)
        pixels = min(max(_integer(request, "pixels", 1000), 100), 4000)
        return _json(request, {**window(files, begin, end, pixels), "files": _states(files)})

    def _search(self, request: Request) -> Response:
        files = self._files(self._run(request))
        only, text = request.args.get("rank", "all"), request.args.get("text", "")[:200]
        after, back = _integer(request, "after", -1), "back" in request.args
        return _json(request, search(files, only, text, after, back))

    def _span(self, request: Request) -> Response:
        files = self._files(self._run(request))
        detail = span_detail(files, _integer(request, "rank", 0), _integer(request, "detail", 0))
        return _json(request, {"detail": detail})


def _states(files: Sequence[tuple[int, Reading]]) -> list[JsonObject]:
    """Return how far each file has been read, and its errors."""
    return [_state(rank, reading) for rank, reading in files]


def _state(rank: int, reading: Reading) -> JsonObject:
    skipped = reading.digest["skipped"] if reading.digest else {}
    share = 1.0 if not reading.busy else min(reading.progress / max(reading.size, 1), 1.0)
    head = {"rank": rank, "name": reading.name, "reading": reading.busy, "share": share}
    state = {"finished": reading.finished, "error": reading.error, "cropped": reading.cropped}
    return head | state | {"skipped": skipped}


def _integer(request: Request, name: str, otherwise: int) -> int:
    text = request.args.get(name, str(otherwise))
    if not re.fullmatch(r"-?[0-9]{1,17}", text):
        raise Refused(f"{name} is not an integer: {text[:50]!r}")
    return int(text)


def _checked(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Wrap ``answer`` so that refused requests get a response with the message."""

    def checked(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _json(request, {"error": "Only GET is answered."}, 405)
        try:
            return answer(request)
        except Refused as error:
            return _json(request, {"error": str(error)}, 404)

    return checked


def _json(request: Request, value: JsonObject, code: int = 200) -> Response:
    data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    headers = dict(_HEADERS)
    if len(data) > 2000 and "gzip" in request.headers.get("Accept-Encoding", ""):
        data = gzip.compress(data, 3)
        headers["Content-Encoding"] = "gzip"
    return Response(data, code, headers, content_type="application/json")


def _file(path: Path) -> Application:
    """Return an application that responds with a file of the package."""

    @Request.application
    def send(request: Request) -> Response:
        return Response(path.read_bytes(), 200, _HEADERS, content_type=_TYPES[path.suffix])

    return send
