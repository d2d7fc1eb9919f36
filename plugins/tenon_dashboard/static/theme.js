// TensorBoard's dark mode if its page is accessible, else the browser's.

/** Set `data-theme` of the document, now and whenever it changes; `changed` is called after each change. */
export function followTheme(changed) {
  const preference = window.matchMedia("(prefers-color-scheme: dark)");
  const host = window.parent === window ? null : window.parent.document.body;
  function apply() {
    const dark = host ? host.classList.contains("dark-mode") : preference.matches;
    const theme = dark ? "dark" : "light";
    if (document.documentElement.dataset.theme !== theme) {
      document.documentElement.dataset.theme = theme;
      changed();
    }
  }
  apply();
  preference.addEventListener("change", apply);
  if (host) new MutationObserver(apply).observe(host, { attributes: true, attributeFilter: ["class"] });
}
