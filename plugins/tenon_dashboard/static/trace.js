// The timeline of all ranks on one clock: zoom, move, search. The server sends what is visible in a window.

import { ask } from "./ask.js";
import { legend } from "./charts.js";
import { h } from "./dom.js";
import { GUTTER, draw, layout, spanAt } from "./lanes.js";
import { table } from "./table.js";
import { count, time } from "./units.js";

// The meanings of colours.
const KINDS = ["compute", "communication", "wait", "data", "optimizer", "module", "annotation", "joined"];
const SHORTEST = 200,
  ZOOM = 1.6,
  LISTED = 100,
  HIGHEST = 12_000;

/** The view of one run; `showFiles` is called with the progress of reading its files. */
export function trace(run, rank, showFiles) {
  const view = { begin: 0, end: 0 };
  let data = null,
    chosen = null,
    waiting = 0,
    asked = 0,
    press = null;
  const canvas = h("canvas", {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "timeline",
    "aria-label":
      "Timeline of all ranks. Plus and minus zoom, arrow keys move, 0 shows all; a table follows.",
    onkeydown: key,
    onwheel: wheel,
    onpointerdown: down,
    onpointermove: moved,
    onpointerup: up,
    onpointerleave: () => {
      tip.hidden = true;
    },
  });
  const tip = h("div", { class: "tip", hidden: true }),
    about = h("div", { class: "chosen", role: "status" }, "Choose a span to see what is known of it.");
  const where = h("span", { class: "note", role: "status" }),
    matches = h("span", { class: "note", role: "status" });
  const text = h("input", {
    type: "search",
    placeholder: "operator, module, …",
    "aria-label": "Search for spans by name",
    onkeydown: (event) => event.key === "Enter" && told(find(event.shiftKey)),
  });
  const listing = h("div"),
    list = h("details", { ontoggle: fill }, h("summary", {}, "Spans in view as a table"), listing);
  const button = (label, title, act) =>
    h("button", { type: "button", title, "aria-label": title, onclick: act }, label);
  const tools = h(
    "div",
    { class: "tools" },
    button("+", "Zoom in", () => zoom(1 / ZOOM)),
    button("−", "Zoom out", () => zoom(ZOOM)),
    button("←", "Earlier", () => shift(-0.3)),
    button("→", "Later", () => shift(0.3)),
    button("All", "Show the whole run", fit),
    h("span", { class: "gap" }),
    text,
    button("Next", "Next match", () => told(find(false))),
    button("Previous", "Previous match", () => told(find(true))),
    matches,
    h("span", { class: "gap" }),
    where,
  );
  const root = h("div", {}, tools, legend(KINDS), h("div", { class: "timeline" }, canvas, tip), about, list);

  /** Show the error of a request in place of its response. */
  const told = (question) => question.catch((error) => (about.textContent = error.message));

  async function load() {
    if (!root.isConnected && asked) return;
    const mine = ++asked,
      width = Math.max(canvas.clientWidth - GUTTER, 300);
    let answer;
    try {
      answer = await ask("trace", {
        run,
        begin: Math.round(view.begin),
        end: Math.round(view.end),
        pixels: Math.round(width),
      });
    } catch (error) {
      about.textContent = error.message;
      return;
    }
    if (mine !== asked) return;
    if (view.end <= view.begin) Object.assign(view, { begin: answer.begin, end: answer.end });
    const whole = data && view.begin === 0 && view.end === data.last;
    const lanes = answer.lanes.filter((lane) => rank === "all" || String(lane.rank) === rank);
    const wanted = lanes.length;
    while (layout(lanes).height > HIGHEST) lanes.pop(); // browsers draw no taller canvas
    data = { ...answer, lanes, hidden: wanted - lanes.length };
    if (whole) view.end = data.last;
    showFiles(answer.files);
    canvas.dataset.lanes = data.lanes.length;
    paint();
    fill();
    if (answer.files.some((file) => file.reading || (!file.finished && !file.error)))
      later(answer.files.some((file) => file.reading) ? 700 : 5000, whole || !data.lanes.length);
  }

  function later(milliseconds, all = false) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (all) view.end = view.begin = 0;
      load();
    }, milliseconds);
  }

  function paint() {
    if (!data) return;
    draw(canvas, data, view, chosen);
    const hidden = data.hidden ? `; ${data.hidden} threads are not shown, choose a rank` : "";
    where.textContent = `${time(view.end - view.begin)} from ${time(view.begin)}${hidden}`;
  }

  function show(begin, end) {
    const last = data?.last ?? end,
      length = Math.min(Math.max(end - begin, SHORTEST), last * 1.02);
    view.begin = Math.min(Math.max(begin, 0), Math.max(last * 1.02 - length, 0));
    view.end = view.begin + length;
    paint();
    later(90);
  }

  function fit() {
    show(0, data.last);
  }

  const shift = (share) =>
    show(view.begin + share * (view.end - view.begin), view.end + share * (view.end - view.begin));

  function zoom(factor, at = (view.begin + view.end) / 2) {
    const length = Math.max((view.end - view.begin) * factor, SHORTEST);
    const begin = at - ((at - view.begin) / (view.end - view.begin)) * length;
    show(begin, begin + length);
  }

  function key(event) {
    const act = {
      "+": () => zoom(1 / ZOOM),
      "=": () => zoom(1 / ZOOM),
      "-": () => zoom(ZOOM),
      w: () => zoom(1 / ZOOM),
      s: () => zoom(ZOOM),
      ArrowLeft: () => shift(-0.2),
      a: () => shift(-0.2),
      ArrowRight: () => shift(0.2),
      d: () => shift(0.2),
      0: fit,
      Home: fit,
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || !data) return;
    event.preventDefault();
    act();
  }

  /** Wheel with Ctrl, or sideways, acts on the timeline; plain scrolling scrolls the page. */
  function wheel(event) {
    if (!data || (!event.ctrlKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY))) return;
    event.preventDefault();
    if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.25 : 0.8, moment(event));
    else shift(event.deltaX / canvas.clientWidth);
  }

  const moment = (event) =>
    view.begin + ((event.offsetX - GUTTER) / (canvas.clientWidth - GUTTER)) * (view.end - view.begin);

  function down(event) {
    press = { x: event.offsetX, begin: view.begin, length: view.end - view.begin, moved: false };
    canvas.setPointerCapture(event.pointerId);
  }

  function moved(event) {
    if (press) {
      press.moved ||= Math.abs(event.offsetX - press.x) > 3;
      const begin = press.begin - ((event.offsetX - press.x) / (canvas.clientWidth - GUTTER)) * press.length;
      if (press.moved) show(begin, begin + press.length);
      return;
    }
    const found = data && spanAt(data, view, canvas.clientWidth, event.offsetX, event.offsetY);
    tip.hidden = !found;
    if (found) {
      const [, duration, name, , detail] = found.span;
      tip.textContent =
        name < 0
          ? `${count(detail)} spans, each narrower than a pixel: zoom in`
          : `${data.names[name]} · ${time(duration)}`;
      tip.style.left = `${Math.min(event.offsetX + 12, canvas.clientWidth - 240)}px`;
      tip.style.top = `${event.offsetY + 16}px`;
    }
  }

  function up(event) {
    const click = press && !press.moved;
    press = null;
    if (click && data) told(choose(spanAt(data, view, canvas.clientWidth, event.offsetX, event.offsetY)));
  }

  async function choose(found) {
    chosen = found;
    paint();
    if (!found) return;
    const [start, duration, name, , detail] = found.span,
      lane = data.lanes[found.lane];
    if (name < 0) {
      show(start - duration * 0.1, start + duration * 1.1);
      return;
    }
    await tell(data.names[name], start, duration, lane.rank, detail);
  }

  async function tell(name, start, duration, of, detail) {
    const known = (await ask("span", { run, rank: of, detail })).detail;
    const facts = [
      ["rank", String(of)],
      ["start", time(start)],
      ["time", time(duration)],
      ...Object.entries(known),
    ];
    about.replaceChildren(
      h("strong", {}, name),
      h(
        "dl",
        {},
        facts.map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]),
      ),
    );
  }

  async function find(back) {
    if (!text.value || !data) return;
    const from = chosen?.span[0] ?? (back ? view.end : view.begin - 1);
    const answer = await ask("search", {
      run,
      rank,
      text: text.value,
      after: Math.round(from),
      ...(back ? { back: 1 } : {}),
    });
    const end = answer.count && !answer.found ? ", none further on" : "";
    matches.textContent = `${count(answer.count)} found${end}`;
    const hit = answer.found;
    if (!hit) return;
    const length = Math.max(hit.duration * 6, 2000),
      middle = hit.start + hit.duration / 2;
    chosen = { lane: -1, depth: hit.level, span: [hit.start, hit.duration] };
    show(middle - length / 2, middle + length / 2);
    const lanes = data.lanes.map((lane, i) => [lane, i]).filter(([lane]) => lane.rank === hit.rank);
    chosen.lane = lanes[hit.lane]?.[1] ?? -1;
    await tell(hit.name, hit.start, hit.duration, hit.rank, hit.detail);
  }

  function fill() {
    if (!list.open || !data) return;
    const rows = data.lanes.flatMap((lane) =>
      lane.levels.flatMap((level, depth) =>
        level.filter((span) => span[2] >= 0).map((span) => ({ lane, depth, span })),
      ),
    );
    rows.sort((a, b) => b.span[1] - a.span[1]);
    listing.replaceChildren(
      table({
        name: `${run} spans`,
        caption: `The longest spans in view, at most ${LISTED}`,
        rows: rows.slice(0, LISTED),
        sort: 2,
        columns: [
          { label: "name", value: (row) => data.names[row.span[2]], text: true },
          { label: "rank", value: (row) => row.lane.rank },
          { label: "time", value: (row) => row.span[1], show: time },
          { label: "start", value: (row) => row.span[0], show: time },
          { label: "depth", value: (row) => row.depth },
          { label: "thread", value: (row) => row.lane.name, text: true },
        ],
      }),
    );
  }

  new ResizeObserver(paint).observe(canvas);
  document.addEventListener("themechange", function repaint() {
    if (root.isConnected) paint();
    else document.removeEventListener("themechange", repaint);
  });
  setTimeout(load, 0);
  return root;
}
