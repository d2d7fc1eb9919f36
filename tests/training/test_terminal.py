"""The progress display: on a terminal, also behind mpirun; never in a file or a pipe."""

import fcntl
import os
import struct
import subprocess
import termios

import pytest

pytestmark = pytest.mark.mpi
ARGUMENTS = ("my.toml", "--set", "epochs=1")


def on_a_terminal(project, ranks, columns):
    """The output that is written to a terminal of that width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**project.environment, "TERM": "xterm-256color"}
    command = project.command(*ARGUMENTS, ranks=ranks)
    process = subprocess.Popen(
        command, cwd=project.folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # Linux answers so when the last writer is gone
        pass
    finally:
        os.close(ours)
    assert process.wait(timeout=300) == 0, shown.decode()
    return shown.decode()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_terminal_shows_one_progress_bar_of_its_width(project, ranks):
    shown = on_a_terminal(project, ranks, columns=70)

    assert "epoch 1/1" in shown and "5/5" in shown
    frames = [frame for frame in shown.replace("\n", "\r").split("\r") if "━" in frame]
    assert frames and all(frame.count("━") <= 70 for frame in frames)
    assert shown.count("run folder: ") == 1
    assert "\x1b[?25l" not in shown, "a job that is killed could not show the cursor again"


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_pipe_gets_plain_lines(finished, ranks):
    run = finished(*ARGUMENTS, ranks=ranks)

    assert run.code == 0 and "\x1b" not in run.out and "━" not in run.out
    assert len(run.out.splitlines()) == 4
