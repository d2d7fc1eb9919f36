"""A headless Chromium over WebDriver's HTTP protocol: a page, its elements, its console and its requests."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--window-size=1360,900",
    "--hide-scrollbars",
    # Requests to another machine fail, and cause a severe line of the console.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


#: TensorBoard with its own plugins and this one: those of other packages start slowly and write to its console.
_TENSORBOARD = """
import sys
from tensorboard import default, program
from tenon_dashboard.dashboard import Dashboard
board = program.TensorBoard(plugins=[*default.get_static_plugins(), Dashboard])
board.configure(["", "--logdir", sys.argv[1], "--port", sys.argv[2], "--host", "127.0.0.1", "--load_fast", "false"])
board.main()
"""


@contextlib.contextmanager
def tensorboard(logdir):
    """TensorBoard's address, while it serves a log directory; it may not answer yet."""
    port = free_port()
    command = [sys.executable, "-c", _TENSORBOARD, str(logdir), str(port)]
    board = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/"
    try:
        yield address
    finally:
        board.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            board.wait(10)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, what, seconds=60.0):
    """The first true value of `condition()`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, LookupError):
            if value := condition():
                return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def answers(address):
    """Wait for a TensorBoard's first answer."""
    wait_for(lambda: urllib.request.urlopen(f"{address}data/plugins_listing").read(), "TensorBoard")


class Browser:
    """One tab at a time. `run` executes JavaScript in the frame that is chosen there."""

    def __init__(self, folder):
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen(
            [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: self._call("GET", "/status")["ready"], "chromedriver")
        options = {"binary": CHROMIUM, "args": [*_ARGUMENTS, f"--user-data-dir={folder}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{answer['sessionId']}"
        self._front = self._call("GET", f"{self._session}/window")

    def _call(self, method, path, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self._url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise LookupError(json.load(error)["value"]["message"]) from None

    def _do(self, path, **body):
        return self._call("POST", self._session + path, body)

    def open(self, url):
        """Show a page in a tab of its own, and go on there; the tab."""
        self._front = self._do("/window/new", type="tab")["handle"]
        self._do("/window", handle=self._front)
        self._do("/url", url=url)
        return self._front

    def turn_to(self, tab):
        """Go on in a tab; whether it was another one. There no frame is chosen."""
        other = tab != self._front
        if other:
            self._do("/window", handle=tab)
            self._front = tab
        return other

    def run(self, script, *arguments):
        return self._do("/execute/sync", script=script, args=list(arguments))

    def enter_frame(self):
        """Go on inside of the frame that TensorBoard shows."""
        script = (
            "return [...document.querySelectorAll('iframe')].find((frame) => frame.offsetWidth > 0) ?? null"
        )
        self._do("/frame", id=wait_for(lambda: self.run(script), "a frame"))

    def keys(self, text):
        """Press keys where the focus is."""
        presses = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._do("/actions", actions=[{"type": "key", "id": "keyboard", "actions": presses}])

    def click(self, element):
        self._do(f"/element/{element[_ELEMENT]}/click")

    def protocol(self, command, **parameters):
        """A command of Chromium's own protocol."""
        return self._do("/goog/cdp/execute", cmd=command, params=parameters)

    def severe(self):
        """The console's severe lines since the last call."""
        lines = self._do("/se/log", type="browser")
        return [line["message"] for line in lines if line["level"] == "SEVERE"]

    def hosts(self):
        """Where all requests since the last call went; nowhere but to this machine, as tests wish."""
        entries = [
            json.loads(entry["message"])["message"] for entry in self._do("/se/log", type="performance")
        ]
        sent = [entry["params"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        addresses = [urlsplit(params["request"]["url"]) for params in sent]
        return {at.hostname for at in addresses if at.scheme not in ("about", "blob", "chrome", "data")}

    def close(self):
        try:
            self._call("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait(10)
