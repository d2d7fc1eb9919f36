"""Runs of known numbers, and the dashboard's routes without a server."""

import contextlib
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenon.cli import main

sys.path.insert(0, str(Path(__file__).parent))

import traces


class Routes:
    """The dashboard of a log directory, asked as TensorBoard asks it."""

    def __init__(self, logdir):
        from tensorboard.plugins import base_plugin

        from tenon_dashboard.dashboard import Dashboard

        self.dashboard = Dashboard(base_plugin.TBContext(logdir=str(logdir)))
        self.apps = self.dashboard.get_plugin_apps()

    def answer(self, route, **query):
        from werkzeug.test import Client

        return Client(self.apps[route]).get(route, query_string=query)

    def json(self, route, **query):
        """The answer when every file has been read."""
        while True:
            value = json.loads(self.answer(route, **query).get_data())
            if not any(file["reading"] for file in value.get("files", [])):
                return value

    def view(self, name, run="run", **query):
        return self.json("/view", run=run, view=name, **query)


@pytest.fixture
def routes():
    opened = []

    def start(logdir):
        opened.append(Routes(logdir))
        return opened[-1]

    pytest.importorskip("tensorboard")
    yield start
    for one in opened:
        one.dashboard.close()


@pytest.fixture(scope="session")
def asked(straggling):
    """The routes of that log directory, after it was read."""
    pytest.importorskip("tensorboard")
    opened = Routes(straggling)
    yield opened
    opened.dashboard.close()


@pytest.fixture(scope="session")
def straggling(tmp_path_factory):
    """A log directory with `run`: four ranks, five steps, rank 2 computes 1.5 times as long."""
    logdir = tmp_path_factory.mktemp("logs")
    traces.training_run(logdir / "run", ranks=4, steps=5, ops=10, slow=2)
    return logdir


@pytest.fixture(scope="session")
def chromium():
    """What tests in a browser ask for: a skip that says what is missing."""
    import browser

    pytest.importorskip("tensorboard")
    if not (browser.CHROMIUM and browser.DRIVER):
        pytest.skip("needs chromium and chromedriver (Debian: chromium chromium-driver)")


def train(folder):
    """A run of `tenon train`, as TensorBoard's own tabs show it."""
    settings = ["epochs=2", "batch_size=512", "log.every=2", "log.histograms=3"]
    settings += ["profile.skip_first=1", "profile.warmup=1", "profile.active=2"]
    options = [word for each in settings for word in ("--set", each)]
    done = CliRunner().invoke(main, ["train", "digits", "--profile", "--run", str(folder), *options])
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="session")
def board(request, chromium, tmp_path_factory):
    """A TensorBoard of all runs: a browser, the log directory, the address.

    In the end no line of the browser's console is severe, and no request has left. Starting the two takes
    most of the time of these tests: all share them.
    """
    import browser
    from page import write_runs

    logdir = tmp_path_factory.mktemp("logs")
    write_runs(logdir)
    if any("tabs" in item.fixturenames for item in request.session.items):
        train(logdir / "digits")
    folder = tmp_path_factory.mktemp("profile")
    with browser.tensorboard(logdir) as address, contextlib.closing(browser.Browser(folder)) as window:
        browser.answers(address)
        window.hosts()
        yield window, logdir, address
        assert window.severe() == []
        assert window.hosts() == {"127.0.0.1"}


@pytest.fixture(scope="session")
def opened(board):
    """The tab "tenon"."""
    import browser
    from page import Page

    found = Page(*board)
    browser.wait_for(lambda: len(found.text("[role=tab]")) == 7, "the tabs")
    found.settle()
    return found


@pytest.fixture
def page(opened):
    """That tab, in front."""
    opened.turn_to()
    return opened
