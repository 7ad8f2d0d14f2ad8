"use strict";
// The filter of claims.html: choices are compared with data-<name> of the rows, words are searched in their text.
// The URL fragment holds the state (#verdict=no&paper=ferero), so that links can lead to a filtered page.
const form = document.querySelector("form.filter");
if (form) {
  const rows = [...document.querySelectorAll("tr.claim")];
  const words = new Map(rows.map((row) => [row, `${row.textContent} ${row.dataset.words}`.toLowerCase()]));
  const fits = (row, [name, value]) => (name === "q"
    ? value.toLowerCase().split(/\s+/).every((word) => words.get(row).includes(word))
    : row.dataset[name] === value);
  const chosen = () => [...new FormData(form)].filter(([, value]) => value.trim() !== "");
  const apply = () => {
    const state = chosen();
    for (const row of rows) row.hidden = !state.every((choice) => fits(row, choice));
    for (const group of document.querySelectorAll("table.claims tbody")) {
      group.hidden = !group.querySelector("tr.claim:not([hidden])");
    }
    const shown = rows.filter((row) => !row.hidden).length;
    form.querySelector("output").textContent = `${state.length ? `${shown} of ` : ""}${rows.length} claims`;
  };
  const write = () => {
    apply();
    const state = new URLSearchParams(chosen()).toString();
    // some browsers refuse this for local files; the filter still works
    try { history.replaceState(null, "", state ? `#${state}` : location.pathname); } catch (e) { /* as above */ }
  };
  const read = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    for (const control of form.elements) {
      if (control.name) control.value = state.get(control.name) || "";
    }
    apply();
  };
  form.hidden = false;
  form.addEventListener("input", write);
  form.addEventListener("submit", (e) => e.preventDefault());
  form.addEventListener("reset", () => setTimeout(write));
  addEventListener("hashchange", read);
  read();
}
