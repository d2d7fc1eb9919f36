"""Derive recommendations from a run's measurements."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from tenon_dashboard.collect import JsonObject, Row
from tenon_dashboard.parts import COMMUNICATION, DATA, OPTIMIZER, OTHER, PARTS, WAIT

#: (part, minimum share of a step to report, weight for ranking, text)
_SHARES = (
    (DATA, 0.1, 1.0, "Loading data takes {} of each step: let workers load ahead (`num_workers`)."),
    (COMMUNICATION, 0.25, 1.0, "Transfers take {} of each step: reduce less often (`accumulate`)."),
    (OPTIMIZER, 0.3, 1.0, "The optimizer takes {} of each step: compile the step, which fuses its updates."),
    (OTHER, 0.4, 0.5, "{} of each step is Python between ops: `tenon.compile` the model or the step."),
)
_WAITING, _ONE_OP, _SLOW_STEP = 0.1, 0.5, 1.8
#: Ranking weights and texts of recommendations.
_Recommendations = list[tuple[float, str]]


def advice(
    ranks: Sequence[JsonObject],
    steps: Sequence[JsonObject],
    collectives: JsonObject,
    operators: Sequence[Row],
) -> list[str]:
    """Return recommendations, the most important first; a single sentence if nothing stands out.

    ``ranks`` and ``steps`` are those of the overview, ``collectives`` is the distributed view, ``operators``
    rows.
    """
    busy = [rank for rank in ranks if rank["duration"] > 0]
    if not busy:
        return ["No step has been recorded yet."]
    middle = median(step["longest"] for step in steps)
    usual = [step for step in steps if step["longest"] < _SLOW_STEP * middle]
    share = [fmean(step["parts"][i] / step["duration"] for step in usual) for i in range(len(PARTS))]
    recommended = [
        (weight * share[part], text.format(_percent(share[part])))
        for part, minimum, weight, text in _SHARES
        if share[part] >= minimum
    ]
    recommended += _waiting(busy, collectives) + _uneven(steps, middle) + _one_op(operators)
    recommended.sort(key=lambda pair: -pair[0])
    return [text for _, text in recommended] or ["Nothing stands out."]


def _waiting(ranks: Sequence[JsonObject], collectives: JsonObject) -> _Recommendations:
    worst = max(ranks, key=lambda rank: rank["parts"][WAIT] / rank["duration"])
    share, rank = worst["parts"][WAIT] / worst["duration"], worst["rank"]
    if share < _WAITING:
        return []
    names = max(
        collectives["collectives"], key=lambda row: row["wait"].get(rank, 0), default={"name": "collectives"}
    )
    text = f"Rank {rank} waits {_percent(share)} of each step in {names['name']}"
    last = max(collectives["arrivals"], key=lambda row: row["last"], default=None)
    if last is None or last["last"] < 0.5 * last["calls"] or last["rank"] == rank:
        return [(share, f"{text}: no rank is always late, so look for work that differs from step to step.")]
    often, late = _percent(last["last"] / last["calls"]), last["late"] / 1e6
    reason = f"rank {last['rank']} comes last to {often} of the collectives, {late:.3g} ms late on average."
    return [(share, f"{text}: {reason} Give it less work, or a free core.")]


def _uneven(steps: Sequence[JsonObject], middle: float) -> _Recommendations:
    worst = max(steps, key=lambda step: step["longest"])
    if len(steps) < 4 or worst["longest"] < _SLOW_STEP * middle:
        return []
    times = f"{worst['longest'] / middle:.2g}"
    text = f"Step {worst['step']} took {times} times the median, on rank {worst['slowest']}"
    if worst is steps[0]:
        return [(1.0, f"{text}: the first one warms up or compiles. Leave it out with `warmup`.")]
    return [(0.15, f"{text}: look at it in Trace.")]


def _one_op(operators: Sequence[Row]) -> _Recommendations:
    by_name: dict[str, int] = {}
    for row in operators:
        by_name[row[0]] = by_name.get(row[0], 0) + row[5]
    total = sum(by_name.values())
    name = max(by_name, key=by_name.__getitem__, default="")
    if not total or by_name[name] < _ONE_OP * total:
        return []
    part = _percent(by_name[name] / total)
    return [(0.1, f"{name} is {part} of the time of all operators: see its shapes in Operators.")]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
