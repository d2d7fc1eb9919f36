// Distributed: the time of each rank by part, which ranks arrive late, and the traffic of collectives.

import { legend, stackedBars } from "./charts.js";
import { h, section } from "./dom.js";
import { partColumns } from "./overview.js";
import { table } from "./table.js";
import { byteRate, bytes, count, percent, time } from "./units.js";

const sum = (values) => values.reduce((a, b) => a + b, 0);

export function distributed(data, run) {
  const bars = data.ranks.map((rank) => ({ label: `rank ${rank.rank}`, parts: rank.parts }));
  const missing = data.world_size - data.known.length;
  return h(
    "div",
    {},
    missing > 0 && h("p", { class: "note" }, `${missing} of ${data.world_size} ranks have no trace here.`),
    section(
      "Time of each rank over all steps",
      legend(data.parts),
      stackedBars(
        bars,
        data.parts,
        "Time of each rank over all steps, by part; the table below has the numbers",
      ),
      table({
        name: `${run} all ranks`,
        caption: "Time of each rank over all steps: time and share of its parts",
        columns: [
          { label: "rank", value: (row) => row.rank, text: true },
          { label: "all steps", value: (row) => sum(row.parts), show: time, bar: true },
          ...partColumns(data.parts),
        ],
        rows: data.ranks,
      }),
    ),
    section(
      "Who comes late",
      !data.aligned &&
        data.arrivals.length > 0 &&
        h(
          "p",
          { class: "note" },
          "The clocks of these traces are not aligned: arrivals on different hosts cannot be compared.",
        ),
      table({
        name: `${run} arrivals`,
        caption: "Arrival of each rank at the collectives that all ranks of their group recorded",
        columns: [
          { label: "rank", value: (row) => row.rank, text: true },
          {
            label: "came last",
            value: (row) => row.last,
            show: (value, row) => `${count(value)} of ${count(row.calls)}`,
            bar: true,
          },
          {
            label: "behind the first",
            value: (row) => row.late,
            show: time,
            bar: true,
            title: "mean over the collectives",
          },
        ],
        rows: data.arrivals,
        sort: 1,
        empty: "Fewer than two ranks met in a collective.",
      }),
    ),
    section(
      "Collectives",
      table({
        name: `${run} collectives`,
        caption: "Collectives over all chosen ranks; bandwidth is bytes over transfer time, without the wait",
        columns: [
          { label: "collective", value: (row) => row.name, text: true },
          { label: "time", value: (row) => row.duration, show: time, bar: true },
          { label: "calls", value: (row) => row.calls, show: count },
          { label: "wait", value: (row) => sum(Object.values(row.wait)), show: time },
          { label: "wait %", value: (row) => sum(Object.values(row.wait)) / row.duration, show: percent },
          { label: "transfer", value: (row) => row.transfer, show: time },
          { label: "bytes", value: (row) => row.bytes, show: bytes },
          {
            label: "bandwidth",
            value: (row) => (row.transfer ? row.bytes / (row.transfer / 1e9) : 0),
            show: byteRate,
          },
        ],
        rows: data.collectives,
        sort: 1,
        empty: "No collective was recorded: one process needs none.",
      }),
    ),
  );
}
