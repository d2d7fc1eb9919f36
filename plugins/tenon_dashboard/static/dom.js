// Build elements. Text is always a text node, so no content of a trace is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** An HTML element: `h("p", {class: "note"}, "text", other)`; `on...` attributes are listeners. */
export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** A section with a heading. */
export function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

/** A labelled choice; `options` are [value, text] pairs. */
export function select(label, options, value, onchange) {
  const box = h(
    "select",
    { onchange: () => onchange(box.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return h("label", {}, h("span", {}, label), box);
}
