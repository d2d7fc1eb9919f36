// The division of step time: in total, per rank, per step; and recommendations.

import { legend, stackedBars, stackedColumns } from "./charts.js";
import { h, section } from "./dom.js";
import { table } from "./table.js";
import { count, percent, time } from "./units.js";

const sum = (values) => values.reduce((a, b) => a + b, 0);

/** Columns of a table that shows each part's time, and its share as tooltip. */
export function partColumns(parts) {
  return parts.map((part, i) => ({
    label: part,
    value: (row) => row.parts[i],
    show: (value, row) => `${time(value)} · ${share(value, sum(row.parts))}`,
  }));
}

const share = (value, total) => (total ? `${((100 * value) / total).toFixed(1)} %` : "–");

export function overview(data, run) {
  const ranks = data.ranks.filter((rank) => rank.steps);
  if (!ranks.length) return h("p", { class: "note" }, "No step has been recorded yet.");
  const mean = (value) => sum(ranks.map(value)) / ranks.length;
  const step = mean((rank) => rank.duration);
  const bars = ranks.map((rank) => ({ label: `rank ${rank.rank}`, parts: rank.parts }));
  return h(
    "div",
    {},
    h(
      "ul",
      { class: "advice", "aria-label": "What stands out" },
      data.advice.map((text) =>
        h(
          "li",
          {},
          text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part)),
        ),
      ),
    ),
    h(
      "dl",
      { class: "figures" },
      figure("mean step", time(step)),
      figure("steps", count(data.steps.length)),
      figure("ranks", count(data.ranks.length)),
      data.parts.map((part, i) => figure(part, percent(mean((rank) => rank.parts[i]) / step))),
      figure("events", count(data.spans)),
    ),
    legend(data.parts),
    h(
      "div",
      { class: "grid2" },
      section(
        "Mean step of each rank",
        stackedBars(
          bars,
          data.parts,
          "Mean step time of each rank, by part; the table below has the numbers",
        ),
      ),
      section(
        "Steps",
        stackedColumns(
          data.steps,
          data.parts,
          "Time of each step, mean over ranks, by part; the table below has the numbers",
        ),
      ),
    ),
    section(
      "Ranks in numbers",
      table({
        name: `${run} ranks`,
        caption: "Mean step of each rank: time and share of its parts",
        columns: [
          { label: "rank", value: (row) => row.rank, text: true },
          { label: "step", value: (row) => row.duration, show: time, bar: true },
          ...partColumns(data.parts),
          { label: "steps", value: (row) => row.steps },
          {
            label: "host",
            value: (row) =>
              [
                row.host,
                row.device,
                row.threads && `${row.threads} ${row.threads === 1 ? "thread" : "threads"}`,
              ]
                .filter(Boolean)
                .join(" · "),
            text: true,
          },
        ],
        rows: ranks,
      }),
    ),
    h(
      "details",
      {},
      h("summary", {}, "Steps in numbers"),
      table({
        name: `${run} steps`,
        caption: "Each step, mean over ranks, and the rank that took longest",
        columns: [
          { label: "step", value: (row) => row.step, text: true },
          { label: "time", value: (row) => row.duration, show: time, bar: true },
          ...partColumns(data.parts),
          { label: "slowest rank", value: (row) => row.slowest },
          { label: "its time", value: (row) => row.longest, show: time },
        ],
        rows: data.steps,
        sort: 1,
      }),
    ),
  );
}

function figure(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
