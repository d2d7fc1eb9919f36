"""Interrupt a compiled step at sixty moments; what is left must work. In a process of its own."""

import signal
import sys

import tenon
from tenon import nn, optim
from tenon.engine.interceptor import SLOT
from tenon.engine.watchers import WATCHERS

sys.unraisablehook = lambda given: None  # Python swallows what is raised in a finaliser
net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
optimizer = optim.Adam(net.parameters())


def step(x):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def interrupt(*given):
    global raised
    raised = True
    raise KeyboardInterrupt


compiled, x = tenon.compile(step), tenon.randn(32, 128)
step(x)  # imports what it needs: Python 3.11 makes a RuntimeError of what interrupts the body of a class
before = signal.signal(signal.SIGALRM, interrupt)
interrupted, raised = 0, False
try:
    for i in range(60):
        try:
            raised = True
            while True:
                if raised:  # or raised in a finaliser, where Python swallows it
                    raised = False
                    signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.00011 * i)
                compiled(x)
        except KeyboardInterrupt:
            interrupted += 1
            # Between the lines of `with no_grad()` Python itself can be interrupted, and no code can help it.
            tenon.set_grad_enabled(True)
finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)

assert interrupted == 60
assert WATCHERS.recorder is None and SLOT.top is None
first = [compiled(x).item() for _ in range(6)][-1]
assert len(compiled.programs) >= 1, compiled.reasons
assert compiled(x).item() < first
assert all(p.isfinite().all().item() for p in net.parameters())
print("nothing is broken")
