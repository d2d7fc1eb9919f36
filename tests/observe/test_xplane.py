"""Files for xprof, parsed by protocol buffers' own library with the layout that tsl's xplane.proto publishes."""

import gzip
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tenon.cli import main
from tenon.profiler import export_xplane, read_trace
from tenon_profiler.xplane import space

RUN = Path(__file__).parent / "data" / "digits"
#: Of each message: its fields, as name, number and type; "+" repeats, a map is its entries.
LAYOUT = {
    "XSpace": "planes:1:XPlane+ errors:2:string+ warnings:3:string+ hostnames:4:string+",
    "XPlane": (
        "id:1:int64 name:2:string lines:3:XLine+ event_metadata:4:EventEntry+ stat_metadata:5:StatEntry+"
    ),
    "EventEntry": "key:1:int64 value:2:XEventMetadata",
    "StatEntry": "key:1:int64 value:2:XStatMetadata",
    "XLine": "id:1:int64 name:2:string timestamp_ns:3:int64 events:4:XEvent+",
    "XEvent": "metadata_id:1:int64 offset_ps:2:int64 duration_ps:3:int64 stats:4:XStat+",
    "XStat": "metadata_id:1:int64 double_value:2:double int64_value:4:int64 ref_value:7:uint64",
    "XEventMetadata": "id:1:int64 name:2:string",
    "XStatMetadata": "id:1:int64 name:2:string",
}


@pytest.fixture(scope="module")
def parse():
    """`parse(data)`: name, line, thread's name, begin, length (in picoseconds) and stats of each event."""
    file = descriptor_pb2.FileDescriptorProto(name="xplane.proto", package="x", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    for name, fields in LAYOUT.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            called, number, kind = text.rstrip("+").split(":")
            label = field.LABEL_REPEATED if text.endswith("+") else field.LABEL_OPTIONAL
            own = (
                {"type_name": f".x.{kind}"}
                if kind in LAYOUT
                else {"type": field.Type.Value(f"TYPE_{kind.upper()}")}
            )
            message.field.add(name=called, number=int(number), label=label, **own)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    whole = message_factory.GetMessageClass(pool.FindMessageTypeByName("x.XSpace"))

    def value(stat, names):
        if stat.ref_value:
            return names[stat.ref_value]
        return stat.double_value or stat.int64_value

    def read(data):
        parsed = whole.FromString(data)
        everything = parsed.SerializeToString()
        parsed.DiscardUnknownFields()
        assert not parsed.errors and parsed.SerializeToString() == everything
        planes = {}
        for plane in parsed.planes:
            names = {entry.key: entry.value.name for entry in plane.stat_metadata}
            titles = {entry.key: entry.value.name for entry in plane.event_metadata}
            assert all(entry.key == entry.value.id for entry in [*plane.stat_metadata, *plane.event_metadata])
            planes[plane.name] = [
                (titles[e.metadata_id], line.name, e.offset_ps, e.duration_ps,
                 {names[s.metadata_id]: value(s, names) for s in e.stats})
                for line in plane.lines for e in line.events
            ]  # fmt: skip
        return list(parsed.hostnames), planes

    return read


def test_the_traces_of_two_ranks_become_files_that_xprof_finds(tmp_path, parse):
    shutil.copytree(RUN, tmp_path / "digits")

    done = CliRunner().invoke(main, ["profile", "xplane", str(tmp_path / "digits")])

    folder = tmp_path / "digits" / "plugins" / "profile" / "digits"
    assert done.exit_code == 0, done.output
    assert done.output == "".join(f"wrote {folder}/vm_{rank}.xplane.pb\n" for rank in (0, 1))
    starts = []
    for rank, source in enumerate(sorted(RUN.iterdir())):
        hosts, planes = parse((folder / f"vm_{rank}.xplane.pb").read_bytes())
        events = planes["/host:CPU"]
        found = [e for e in read_trace(source)[1] if "cat" in e]
        assert hosts == ["vm"] and list(planes) == ["/host:CPU"] and len(events) == len(found)
        assert sum(e[3] for e in events) == pytest.approx(1e6 * sum(e.get("dur", 0) for e in found))
        steps = [e for e in events if e[0] == "train"]
        assert [e[4]["step_num"] for e in steps] == [2, 3] and all(e[4]["_r"] == 1 for e in steps)
        assert all(0 <= e[2] < 60e12 for e in events) and {e[1] for e in events} >= {"main"}
        starts.append(steps[0][2])
        linear = next(e for e in events if e[0] == "DigitsNet/classifier/2/linear:linear")
        assert linear[4]["flops"] > 0 and linear[4]["Phase"] == "forward"
        assert linear[4]["Input Dims"].startswith("[[")
    assert abs(starts[0] - starts[1]) < 1e12


def test_memory_and_kernels_are_what_xprof_calls_so(parse):
    said = {"Bytes": -8, "Addr": 5, "Total Allocated": 16, "Total Reserved": 16, "Op": "tenon::add"}
    events = [
        {"ph": "M", "name": "thread_name", "pid": 7, "tid": 7, "args": {"name": "main"}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 7, "ts": 3.5,
         "args": said | {"Bytes": 8, "Total Allocated": 24}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "tid": 7, "ts": 4.0, "args": said},
        {"ph": "X", "cat": "kernel", "name": "tenon::add", "pid": 1, "tid": 0, "ts": 5.0, "dur": 0.25,
         "args": {"device": 1, "stream": 3, "correlation": 9}},
        {"ph": "X", "cat": "cpu_op", "name": "AddBackward0", "tid": 8, "ts": 2.0, "dur": 1.5, "args": {"note": 0.5}},
    ]  # fmt: skip

    hosts, planes = parse(space(events, 1000, "here"))

    assert hosts == ["here"]
    assert planes["/device:GPU:1"] == [
        ("tenon::add", "Stream #3", 4_000_000, 250_000,
         {"device": 1, "stream": 3, "correlation_id": 9, "tf_op": "add:add"}),
    ]  # fmt: skip
    before, memory, backward = planes["/host:CPU"]
    assert (before[0], before[4]["peak_bytes_in_use"]) == ("MemoryAllocation", 24)
    assert memory[:4] == ("MemoryDeallocation", "main", 3_000_000, 0)
    assert memory[4] == {
        "addr": 5, "bytes_allocated": 16, "peak_bytes_in_use": 24, "tf_op": "tenon::add", "allocation_bytes": 8,
        "requested_bytes": 8, "allocator_name": "cpu",
    }  # fmt: skip
    assert backward == ("AddBackward0:AddBackward0", "thread 8", 1_000_000, 1_500_000, {"note": 0.5})


def test_cycles_are_runs_of_their_own_and_a_folder_without_traces_is_reported(tmp_path):
    (tmp_path / "r").mkdir()
    for cycle, source in enumerate(sorted(RUN.iterdir())):
        text = gzip.decompress(source.read_bytes()).replace(b'"cycle": 0', b'"cycle": %d' % cycle)
        (tmp_path / "r" / source.name).write_bytes(gzip.compress(text))

    paths = export_xplane(tmp_path / "r", tmp_path / "logs")

    top = tmp_path / "logs" / "plugins" / "profile"
    assert paths == [top / "r" / "vm_0.xplane.pb", top / "r_1" / "vm_1.xplane.pb"]
    done = CliRunner().invoke(main, ["profile", "xplane", str(top)])
    assert done.exit_code == 1 and "no traces in" in done.output
