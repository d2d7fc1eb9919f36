// The page: the choice of runs and views. TensorBoard calls render() in a frame.

import { ask } from "./ask.js";
import { h, select } from "./dom.js";
import { distributed } from "./distributed.js";
import { kernels } from "./kernels.js";
import { memory } from "./memory.js";
import { modules } from "./modules.js";
import { compared, operators } from "./operators.js";
import { overview } from "./overview.js";
import { followTheme } from "./theme.js";
import { trace } from "./trace.js";

// name: [title, draw(data, run)]; the trace view requests its windows itself.
const VIEWS = {
  overview: ["Overview", overview],
  operators: ["Operators", operators],
  modules: ["Modules", modules],
  memory: ["Memory", memory],
  kernels: ["Kernels", kernels],
  distributed: ["Distributed", distributed],
  trace: ["Trace", null],
};
const WHILE_READING = 700,
  WHILE_GROWING = 5000,
  LOOK_AGAIN = 10_000;

const state = { runs: [], run: "", other: "", rank: "all", view: "overview" };
const parts = {};
let drawn = "",
  timer = 0,
  looking = 0,
  turn = 0;

export async function render() {
  const style = h("link", { rel: "stylesheet", href: "static/style.css" });
  await new Promise((done) => {
    style.addEventListener("load", done);
    document.head.append(style);
  });
  document.documentElement.lang = "en";
  document.title = "tenon";
  parts.choices = h("div", { class: "choices" });
  parts.status = h("div", { class: "status", role: "status" });
  parts.tabs = h(
    "div",
    { role: "tablist", "aria-label": "Views", onkeydown: move },
    Object.entries(VIEWS).map(([name, [title]]) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "view",
          onclick: () => change({ view: name }),
        },
        title,
      ),
    ),
  );
  parts.panels = h("div", { class: "panels" });
  parts.problems = h("div", {});
  parts.main = h("main", { id: "view", role: "tabpanel", tabindex: -1 }, parts.problems, parts.panels);
  const title = h("h1", { class: "unseen" }, "Profiles of tenon");
  document.body.replaceChildren(h("header", {}, title, parts.choices, parts.tabs), parts.main);
  followTheme(() => document.dispatchEvent(new Event("themechange")));
  await findRuns();
  document.addEventListener("visibilitychange", () => !document.hidden && findRuns().then(update));
}

/** Look for runs periodically; draw the first time, and when the chosen run has disappeared. */
async function findRuns() {
  clearTimeout(looking);
  try {
    const runs = (await ask("runs", {})).runs,
      changed = JSON.stringify(runs) !== JSON.stringify(state.runs);
    state.runs = runs;
    if (!runs.length) nothingYet();
    else if (!runs.some((run) => run.name === state.run)) change({ run: runs.at(-1).name, other: "" });
    else if (state.other && !runs.some((run) => run.name === state.other)) change({ other: "" });
    else if (changed) showChoices();
  } catch (error) {
    problem(parts.problems, [`TensorBoard does not answer: ${error.message}`]);
  }
  looking = setTimeout(findRuns, state.runs.length ? LOOK_AGAIN : WHILE_GROWING);
}

function nothingYet() {
  state.run = "";
  const command = h("code", {}, "tenon train digits --profile");
  parts.panels.replaceChildren(
    h(
      "p",
      { class: "note" },
      "No run has a trace yet. Record one with ",
      command,
      "; this page looks again.",
    ),
  );
}

function change(choice) {
  Object.assign(state, choice);
  if (!state.run) return;
  drawn = "";
  showChoices();
  for (const tab of parts.tabs.children) {
    const chosen = tab.id === `tab-${state.view}`;
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
  }
  parts.main.setAttribute("aria-labelledby", `tab-${state.view}`);
  parts.main.className = `${state.other ? "two" : ""} ${state.view === "trace" || state.other ? "wide" : ""}`;
  if (state.view !== "trace") parts.panels.setAttribute("aria-busy", "true");
  update();
}

/** Draw the choices of runs and ranks; the focus is kept. */
function showChoices() {
  const names = state.runs.map((run) => [run.name, run.name]);
  const run = state.runs.find((run) => run.name === state.run);
  const ranks = run.ranks.map((rank) => [String(rank), `rank ${rank}`]);
  if (!ranks.some(([rank]) => rank === state.rank)) state.rank = "all";
  const focused =
    parts.choices.contains(document.activeElement) && document.activeElement.closest("label").id;
  const boxes = [
    select("Run", names, state.run, (run) => change({ run })),
    select("Compare with", [["", "nothing"], ...names], state.other, (other) => change({ other })),
    select("Ranks", [["all", "all ranks"], ...ranks], state.rank, (rank) => change({ rank })),
  ];
  boxes.forEach((box, i) => box.setAttribute("id", `choice-${i}`));
  parts.choices.replaceChildren(...boxes, parts.status);
  if (focused) document.querySelector(`#${focused} select`).focus();
}

/** Arrow keys move between the tabs, as ARIA's pattern for tabs requires. */
function move(event) {
  const names = Object.keys(VIEWS),
    at = names.indexOf(state.view);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  change({ view: names[(to + names.length) % names.length] });
  document.getElementById(`tab-${state.view}`).focus();
}

/** Request the view of each chosen run, draw it if it has changed, and repeat while files grow. */
async function update() {
  clearTimeout(timer);
  if (!state.run) return;
  const mine = ++turn,
    names = [state.run, ...(state.other ? [state.other] : [])];
  if (state.view === "trace") {
    if (drawn !== "trace")
      parts.panels.replaceChildren(...names.map((run) => panel(run, trace(run, state.rank, showFiles))));
    drawn = "trace";
    parts.panels.setAttribute("aria-busy", "false");
    return;
  }
  let answers;
  try {
    answers = await Promise.all(names.map((run) => ask("view", { run, view: state.view, rank: state.rank })));
  } catch (error) {
    if (mine !== turn) return;
    problem(parts.problems, [error.message]);
    timer = setTimeout(() => findRuns().then(update), WHILE_GROWING); // the run may have disappeared
    return;
  }
  if (mine !== turn) return;
  const files = answers.flatMap((answer) => answer.files);
  showFiles(files);
  const text = JSON.stringify(answers.map(({ files, ...shown }) => shown));
  if (text !== drawn) {
    drawn = text;
    parts.panels.replaceChildren(...panelsOf(answers, names));
  }
  parts.panels.setAttribute("aria-busy", "false");
  const reading = files.some((file) => file.reading);
  if (reading || files.some((file) => !file.finished && !file.error)) {
    timer = setTimeout(update, reading ? WHILE_READING : WHILE_GROWING);
  }
}

function panelsOf(answers, names) {
  const draw = VIEWS[state.view][1];
  const found = answers.map((answer, i) =>
    panel(names[i], shows(answer) ? draw(answer, names[i]) : waiting(answer)),
  );
  if (state.view === "operators" && answers.length === 2 && answers.every(shows)) return [compared(answers, names)];
  return found;
}

/** Whether there are data of the chosen ranks. */
const shows = (answer) =>
  state.rank === "all" ? answer.known.length > 0 : answer.known.includes(Number(state.rank));

function waiting(answer) {
  if (answer.known.length) return h("p", { class: "note" }, `This run has nothing of rank ${state.rank}.`);
  const open = answer.files.some((file) => file.reading);
  return h("p", { class: "note" }, open ? "Reading the traces…" : "None of this run's traces can be read.");
}

function panel(run, content) {
  return h("div", { class: "panel" }, state.other && h("h2", { class: "run" }, run), content);
}

function problem(place, texts) {
  place.replaceChildren(
    ...(texts.length
      ? [
          h(
            "div",
            { class: "problem", role: "alert" },
            texts.map((text) => h("p", {}, text)),
          ),
        ]
      : []),
  );
}

/** Show how far the files have been read, and their errors. */
function showFiles(files) {
  const open = files.filter((file) => file.reading),
    growing = files.filter((file) => !file.finished && !file.error && !file.reading);
  const share = files.reduce((sum, file) => sum + file.share, 0) / Math.max(files.length, 1);
  const text = open.length
    ? `Read ${files.length - open.length} of ${files.length} traces`
    : growing.length
      ? `${growing.length} of ${files.length} traces unfinished: still being written, or cut off`
      : `${files.length} ${files.length === 1 ? "trace" : "traces"}`;
  if (parts.status.firstChild?.textContent !== text || open.length) {
    parts.status.replaceChildren(
      h("span", {}, text),
      ...(open.length ? [h("progress", { value: share, max: 1, "aria-label": "Reading" })] : []),
    );
  }
  const wrong = files.flatMap((file) => [
    ...(file.error ? [`Rank ${file.rank} is left out. ${file.name}: ${file.error}.`] : []),
    ...(file.cropped ? [`Rank ${file.rank} has no timeline: this run has more spans than fit.`] : []),
    ...Object.entries(file.skipped).map(
      ([reason, times]) =>
        `Rank ${file.rank}: ${times === 1 ? "an event" : `${times} events`} of ${file.name} left out: ${reason}.`,
    ),
  ]);
  if (parts.problems.textContent !== wrong.join("")) problem(parts.problems, wrong);
}
