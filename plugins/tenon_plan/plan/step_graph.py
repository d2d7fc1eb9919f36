"""The graph of a rank's step: captured like any other, and planned by ``GraphPlan``.

It is the step of one rank on its share of a batch, in the micro-batches of the configuration, without the
collective calls: those are recorded by the rehearsal.
"""

from __future__ import annotations

import tenon
from tenon.data.collate import fetch
from tenon.errors import CaptureError, TenonError
from tenon.extend import CapturedGraph, Nested, Session, run_parts
from tenon_plan.plan.graph_plan import GraphPlan
from tenon_plan.plan.recorded_calls import Result


def plan(session: Session) -> Result:
    """Return the plan of the step's graph as plain values, and a remark where it is not exact."""
    try:
        graph, remark = captured(session)
        return {"plan": GraphPlan.of(graph, "step").plain(), "remark": remark}
    except TenonError as error:
        return {"remark": f"none, as the step cannot be captured. {error}"}


def captured(session: Session) -> tuple[CapturedGraph, str]:
    """Capture a step of the session on the rank's share of the first batch."""
    batches = _batches(session)
    session.model.train()
    shared = session.size > 1 and session.config.data_parallel.shard_optimizer

    def step(batches: list[tuple[Nested, Nested]]) -> Nested:
        loss = run_parts.local_step(session, batches, run_parts.autocasting)
        # An optimizer with a share of the state reads a share of the gradients; other ranks get the rest.
        return [loss, *(p.grad for p in session.model.parameters() if p.grad is not None)] if shared else loss

    left_out = ["the gradient scaler is not in it"] if session.scaler is not None else []
    try:
        return tenon.export.capture(step, batches, train=True), _sentence(left_out)
    except CaptureError as error:
        graph = tenon.export.capture(step, batches, train=True, as_run=True)
        return graph, _sentence(
            [*left_out, f"of this one batch, as the step is not the same for all. {error}"]
        )


def _sentence(parts: list[str]) -> str:
    return "; ".join(parts) and "; ".join(parts).rstrip(".") + "."


def _batches(session: Session) -> list[tuple[Nested, Nested]]:
    """Return the micro-batches of this rank in the first step."""
    config = session.config
    indices = range(min(config.batch_size, len(session.data.train)))
    own = run_parts.share(indices, session.rank, session.size)
    parts = [run_parts.share(own, index, config.accumulate) for index in range(config.accumulate)]
    return [
        run_parts.unpack(run_parts.to_device(fetch(session.data.train, part), session))
        for part in parts
        if len(part)
    ]
