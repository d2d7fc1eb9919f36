// Modules: a flame graph and a tree of the model, with time forward and backward, FLOPs and memory.

import { h, section, select } from "./dom.js";
import { bytes, count, flops, time } from "./units.js";

const ROW = 24,
  NARROWEST = 0.2;
const KINDS = [
  ["both", "forward and backward"],
  ["forward", "forward"],
  ["backward", "backward"],
];
const value = {
  both: (node) => node.forward + node.backward,
  forward: (node) => node.forward,
  backward: (node) => node.backward,
};
// The folded and zoomed modules, by run and path, and the quantity that the flame graph shows.
const folded = new Set(),
  zoomed = new Map();
let kind = "both";

function treeOf(nodes) {
  const found = new Map(nodes.map((node) => [node.path, { ...node, children: [] }]));
  const roots = [];
  for (const node of found.values()) {
    const parent = found.get(node.path.slice(0, Math.max(node.path.lastIndexOf("."), 0)));
    (parent ? parent.children : roots).push(node);
  }
  return [roots, found];
}

const name = (node) => node.path.slice(node.path.lastIndexOf(".") + 1);

export function modules(data, run) {
  if (!data.nodes.length)
    return h("p", { class: "note" }, "No module was recorded: profile with with_modules=True.");
  const place = h("div"),
    [roots, found] = treeOf(data.nodes);
  const draw = (focus) => {
    place.replaceChildren(
      section(
        "Flame graph",
        h(
          "div",
          { class: "tools" },
          select("Width is time in", KINDS, kind, (chosen) => {
            kind = chosen;
            draw("select");
          }),
          h(
            "button",
            {
              type: "button",
              disabled: !zoomed.get(run),
              onclick: () => {
                zoomed.delete(run);
                draw(".flame button");
              },
            },
            "Show the whole model",
          ),
        ),
        flame(
          zoomed.has(run) && found.has(zoomed.get(run)) ? [found.get(zoomed.get(run))] : roots,
          (path) => {
            zoomed.set(run, path);
            draw(".flame button");
          },
        ),
      ),
      section("Modules", tree(roots, run, draw)),
    );
    if (focus) place.querySelector(focus)?.focus();
  };
  draw();
  return place;
}

function flame(roots, zoom) {
  const total = roots.reduce((sum, node) => sum + value[kind](node), 0) || 1;
  const boxes = [];
  let deepest = 0;
  (function place(nodes, left, depth) {
    for (const node of nodes) {
      const width = (100 * value[kind](node)) / total;
      if (width >= NARROWEST) {
        deepest = Math.max(deepest, depth);
        const known = node.class ? `${node.path} (${node.class})` : node.path;
        const text = `${known}: ${time(value[kind](node))}, ${width.toFixed(1)} %`;
        boxes.push(
          h(
            "button",
            {
              type: "button",
              tabindex: boxes.length ? -1 : 0,
              title: text,
              "aria-label": text,
              class: `${kind === "backward" ? "backward" : ""} ${depth % 2 ? "odd" : ""}`,
              style: {
                left: `${left}%`,
                width: `${width}%`,
                top: `${depth * ROW}px`,
              },
              onclick: () => zoom(node.path),
            },
            name(node),
            /^\d+$/.test(name(node)) ? ` ${node.class}` : "",
          ),
        );
        place(node.children, left, depth + 1);
      }
      left += width;
    }
  })(roots, 0, 0);
  const graph = h(
    "div",
    {
      class: "flame",
      role: "group",
      "aria-label": "Flame graph; arrow keys move, Enter zooms in",
      onkeydown: walk,
      style: { height: `${(deepest + 1) * ROW}px` },
    },
    boxes,
  );
  return graph;
}

/** Arrow keys move to the box beside, above or below. */
function walk(event) {
  const boxes = [...event.currentTarget.children],
    at = document.activeElement,
    { left, top } = at.getBoundingClientRect();
  const side = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!side) return;
  event.preventDefault();
  const level = (box) => Math.round((box.getBoundingClientRect().top - top) / ROW);
  const near = boxes
    .filter(
      (box) =>
        box !== at &&
        level(box) === side[1] &&
        (side[0] ? Math.sign(box.getBoundingClientRect().left - left) === side[0] : true),
    )
    .sort(
      (a, b) =>
        Math.abs(a.getBoundingClientRect().left - left) - Math.abs(b.getBoundingClientRect().left - left),
    )[0];
  if (near) {
    at.tabIndex = -1;
    near.tabIndex = 0;
    near.focus();
  }
}

function tree(roots, run, draw) {
  const rows = [],
    total = roots.reduce((sum, node) => sum + node.forward + node.backward, 0) || 1;
  (function add(nodes) {
    for (const node of nodes) {
      const key = `${run} ${node.path}`,
        closed = folded.has(key),
        id = `fold-${rows.length}`;
      const fold = h(
        "button",
        {
          type: "button",
          id,
          "aria-expanded": String(!closed),
          "aria-label": `Inside of ${node.path}`,
          onclick: () => {
            if (!folded.delete(key)) folded.add(key);
            draw(`#${id}`);
          },
        },
        closed ? "▸" : "▾",
      );
      const share = (node.forward + node.backward) / total;
      rows.push(
        h(
          "tr",
          {},
          h(
            "th",
            { scope: "row", style: { paddingLeft: `${10 + node.depth * 18}px` } },
            node.children.length ? fold : h("span", { class: "leaf" }),
            name(node),
            h("span", { class: "class" }, node.class),
          ),
          number(count(node.calls)),
          number(time(node.forward), share, node.forward / total),
          number(time(node.own_forward)),
          number(time(node.backward), share, node.backward / total),
          number(flops(node.flops)),
          number(node.bytes ? bytes(node.bytes) : ""),
        ),
      );
      if (!closed) add(node.children);
    }
  })(roots);
  const heads = ["module", "calls", "forward", "own forward", "backward", "FLOPs", "allocated"];
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Module tree" },
    h(
      "table",
      { class: "tree" },
      h(
        "caption",
        {},
        "Modules and everything inside, over all steps and chosen ranks; “own forward” is without children",
      ),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head, i) =>
            h(
              "th",
              { scope: "col", class: i ? "number" : "text", style: { padding: "5px 10px" } },
              h("strong", {}, head),
            ),
          ),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
}

function number(text, share, part) {
  return h(
    "td",
    share === undefined
      ? { class: "number" }
      : { class: "number bar", style: { backgroundSize: `${100 * part}% 100%` } },
    text,
  );
}
