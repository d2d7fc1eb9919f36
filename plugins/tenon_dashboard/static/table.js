// A table that sorts by any column, filters by text and shows long lists in parts.

import { h } from "./dom.js";
import { count } from "./units.js";

const PART = 50;
// The sorting, filter and expansion of each table, by its name, which are kept when it is drawn again.
const remembered = new Map();

/**
 * columns: {label, value(row), show(value, row), text: is text, bar: draw its share of the largest,
 * tight: keep on one line, title: explanation}.
 * The first column heads the rows. `sort` is the index of the column that sorts at first, largest first.
 */
export function table({
  name,
  caption,
  columns,
  rows,
  sort = 0,
  filter = false,
  empty = "Nothing was recorded.",
}) {
  const state = remembered.get(name) ?? { sort, down: !columns[sort].text, filter: "", shown: PART };
  remembered.set(name, state);
  if (!rows.length) return h("p", { class: "note" }, empty);
  const body = h("tbody");
  const heads = columns.map((column, i) =>
    h(
      "th",
      { scope: "col", class: column.text ? "text" : "number" },
      h("button", { type: "button", title: column.title, onclick: () => by(i) }, column.label),
    ),
  );
  const more = h("button", {
    type: "button",
    class: "more",
    onclick: () => {
      state.shown = Infinity;
      draw();
    },
  });
  const box = h("input", {
    type: "search",
    placeholder: "filter",
    "aria-label": `Filter ${caption}`,
    value: state.filter,
    oninput: () => {
      state.filter = box.value;
      draw();
    },
  });

  function by(i) {
    state.down = state.sort === i ? !state.down : !columns[i].text;
    state.sort = i;
    draw();
  }

  function draw() {
    const column = columns[state.sort] ?? columns[0];
    const wanted = state.filter.toLowerCase();
    const kept = rows.filter(
      (row) => !wanted || columns.some((c) => c.text && String(c.value(row)).toLowerCase().includes(wanted)),
    );
    const sign = state.down ? -1 : 1;
    kept.sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      return (
        sign *
        (column.text
          ? String(x).localeCompare(String(y), "en", { numeric: true })
          : (x ?? -Infinity) - (y ?? -Infinity))
      );
    });
    heads.forEach((head, i) => {
      if (columns[i] === column) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const most = columns.map((c) =>
      c.bar ? Math.max(...rows.map((row) => Math.abs(c.value(row) ?? 0))) : 0,
    );
    body.replaceChildren(
      ...kept.slice(0, state.shown).map((row) =>
        h(
          "tr",
          {},
          columns.map((c, i) => cell(c, row, most[i], i === 0)),
        ),
      ),
    );
    more.textContent = `Show all ${count(kept.length)} rows`;
    more.hidden = kept.length <= state.shown;
  }

  draw();
  return h(
    "div",
    { class: "table" },
    filter && box,
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads)), body),
    ),
    more,
  );
}

function cell(column, row, most, first) {
  const value = column.value(row);
  const text = column.show ? column.show(value, row) : String(value ?? "");
  const attributes = { class: `${column.text ? "text" : "number"}${column.tight ? " tight" : ""}` };
  if (column.bar && most > 0) {
    attributes.class += " bar";
    attributes.style = { backgroundSize: `${(100 * Math.abs(value ?? 0)) / most}% 100%` };
  }
  return first ? h("th", { scope: "row", ...attributes }, text) : h("td", attributes, text);
}
