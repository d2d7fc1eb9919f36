"""Synthetic runs in the format of docs/guide/profiler.md, with numbers that can be worked out by hand."""

import gzip
import json
import zlib

BASE = 1_790_000_000_000_000_000
#: Microseconds of a step's parts, as `training_step` lays them out (plus what is asked for as wait).
MEMORY_FIRST = ("Bytes", "Addr", "Total Allocated", "Total Reserved", "Device Type")
FORWARD, BACKWARD, UPDATE, TRANSFER, LOADING = 1000.0, 1500.0, 300.0, 200.0, 150.0


def header(rank=0, size=1, **more):
    tenon = {
        "format": 1,
        "rank": rank,
        "world_size": size,
        "host": "node",
        "cycle": 0,
        "clock": {"id": "boot", "offset_ns": 0, "error_ns": 0, "aligned": True},
        "machine": {"device": "cpu", "threads": 1, "flops_per_second": 5e10, "bytes_per_second": 1e10},
    }
    return {"schemaVersion": 1, "baseTimeNanoseconds": BASE, "host_name": "node", "tenon": tenon, **more}


def span(cat, name, ts, dur, tid=1, pid=100, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def memory(ts, change, address, total, module="Net", op="tenon::linear", device=-1):
    args = {"Bytes": change, "Addr": address, "Device Type": int(device >= 0), "Device Id": device}
    args |= {
        "Total Allocated": total,
        "Total Reserved": total,
        "Op": op,
        "Module": module,
        "Phase": "forward",
    }
    kind = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]"}
    return kind | {"pid": 100, "tid": 1, "ts": ts, "args": args}


def text(events, head=None, ended=True):
    begin = json.dumps(header() if head is None else head)[:-1] + ', "traceEvents": [\n'
    body = ",\n".join(json.dumps(event) for event in events)
    end = json.dumps({"events": len(events), "dropped": 0})
    return begin + body + (f'\n], "tenonEnd": {end}}}\n' if ended else "")


def worded(events):
    """The text of a trace as the profiler formats it: three decimals, memory's numbers first."""
    lines = []
    for event in events:
        event = {key: f"@{event[key]:.3f}@" if key in ("ts", "dur") else event[key] for key in event}
        if event["name"] == "[memory]":
            first = {key: event["args"][key] for key in MEMORY_FIRST if key in event["args"]}
            event["args"] = first | event["args"]
        lines.append(json.dumps(event).replace('"@', "").replace('@"', ""))
    return '{"traceEvents": [\n' + ",\n".join(lines) + ",\n" + json.dumps({"ph": "i", "name": "end"}) + "\n]}"


def write(folder, events, rank=0, size=1, ended=True, ns=1, head=None):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"node_{rank}.{ns}.pt.trace.json.gz{'' if ended else '.part'}"
    data = text(events, head or header(rank, size), ended).encode()
    if ended:
        path.write_bytes(gzip.compress(data, 1))
    else:  # flushed, not closed
        packer = zlib.compressobj(1, wbits=31)
        path.write_bytes(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))
    return path


def training_step(number, ts, ops=6, wait=100.0, compute=1.0, layers=2):
    """Events of one step, in the order in which they end; the step's end."""
    events, at = [], ts
    events.append(span("cpu_op", "enumerate(DataLoader)#_Loader.__next__", at, LOADING, Phase="data"))
    at += LOADING
    length = FORWARD * compute / ops
    per_layer = max(1, ops // layers)
    begin = at
    for i in range(ops):
        layer = min(i // per_layer, layers - 1)
        if i and i % per_layer == 0 and i // per_layer < layers:
            events.append(module(layer - 1, begin, at - begin))
            begin = at
        op = ("tenon::linear", "tenon::relu")[i % 2]
        flops = 2 * 64 * 32 * 64 if i % 2 == 0 else 2048
        about = {"Module": f"Net.layers.{layer}", "Phase": "forward", "Input Dims": [[64, 32], [64, 32]]}
        events.append(span("cpu_op", op, at, length, **about, FLOPs=flops, Bytes=16384))
        at += length
    events.append(module(layers - 1, begin, at - begin))
    name = "nn.Module: Net_0"
    events.append(
        span("python_function", name, ts + LOADING, at - ts - LOADING, Module="Net", Phase="forward")
    )
    backward = at
    length = BACKWARD * compute / ops
    for i in range(ops):
        layer = min((ops - 1 - i) // per_layer, layers - 1)
        about = {"Module": f"Net.layers.{layer}", "Phase": "backward"}
        events.append(span("cpu_op", "tenon::matmul", at, length / 2, **about, FLOPs=4096, Bytes=8192))
        events.append(span("cpu_op", "AddmmBackward0", at, length, **about, Node=1))
        at += length
    events.append(span("user_annotation", "backward", backward, at - backward, Phase="backward"))
    begin = at
    events.append(span("tenon_wait", "wait: all_reduce", at, wait, Number=number))
    at += wait
    events.append(
        span("tenon_transfer", "transfer: all_reduce", at, TRANSFER, Number=number, Bytes=1_000_000)
    )
    at += TRANSFER
    timed = {"Wait us": wait, "Transfer us": TRANSFER, "Number": number, "Bytes": 1_000_000, "Detail": "sum"}
    shape = {"Input Dims": [[250_000]], "Input type": ["float"]}
    events.append(span("user_annotation", "gloo:all_reduce", begin, at - begin, **timed, **shape))
    events.append(span("cpu_op", "tenon::adamw_step", at, UPDATE, Phase="optimizer", Bytes=4_000_000))
    events.append(span("user_annotation", "Optimizer.step#AdamW.step", at, UPDATE, Phase="optimizer"))
    at += UPDATE + 50.0  # Python between the ops
    events.append(span("user_annotation", f"ProfilerStep#{number}", ts, at - ts))
    return events, at


def module(layer, ts, dur):
    about = {"Module": f"Net.layers.{layer}", "Phase": "forward", "Python module id": layer}
    return span("python_function", f"nn.Module: Linear_{layer}", ts, dur, **about)


def training_run(folder, ranks=2, steps=3, ops=6, slow=None):
    """A run whose ranks meet in an all-reduce each step; rank ``slow`` computes half as long again."""
    for rank in range(ranks):
        events, at = [], 0.0
        factor = {False: 1.0, True: 1.5}
        late = 0.5 * (FORWARD + BACKWARD) if slow is not None else 0.0
        for number in range(steps):
            wait = 100.0 + (late if rank != slow else 0.0)
            events.append(memory(at + 1, 4096, 2 * number, 4096 * (1 + number % 2) + 1024, "Net.layers.0"))
            events.append(memory(at + 2, -4096, 2 * number, 1024, "Net.layers.0"))
            step, at = training_step(number, at, ops, wait, factor[rank == slow])
            events += step
        write(folder, events, rank, ranks, ns=1000 + rank)
