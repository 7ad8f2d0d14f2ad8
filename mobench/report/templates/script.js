"use strict";
(() => {
  const $ = (q, e = document) => e.querySelector(q);
  const $$ = (q, e = document) => [...e.querySelectorAll(q)];

  // the form that filters the page: choices are compared with data-<name> of the items, words are searched in their text.
  // The URL fragment holds the state (#verdict=no&paper=ferero), so that links can lead to a filtered page
  const form = $("form.filter");
  let show = () => {};
  if (form) {
    form.hidden = false;
    const items = $$(form.dataset.items).map((e) => ({ e, text: null }));
    const groups = form.dataset.groups ? $$(form.dataset.groups) : [];
    // groups of a long table are folded until something is asked for
    const folds = $$("tr.fold button").map((button) => {
      const body = button.closest("tbody");
      const set = (open) => {
        body.classList.toggle("closed", !open);
        button.setAttribute("aria-expanded", String(open));
      };
      button.addEventListener("click", () => set(body.classList.contains("closed")));
      return { set };
    });
    const output = $("output", form);
    const none = $(".nothing");
    const controls = () => [...form.elements].filter((c) => c.name);
    const chosen = () => [...new FormData(form)].filter(([, value]) => value.trim() !== "");
    const text = (item) => {
      if (item.text === null) item.text = `${item.e.textContent} ${item.e.dataset.words || ""}`.toLowerCase();
      return item.text;
    };
    const apply = () => {
      const state = chosen();
      const words = state.filter(([k]) => k === "q").flatMap(([, v]) => v.toLowerCase().split(/\s+/).filter(Boolean));
      const wanted = state.filter(([k]) => k !== "q");
      let n = 0;
      for (const item of items) {
        const fits = wanted.every(([k, v]) => item.e.dataset[k] === v || (item.e.dataset[k] || "").split(" ").includes(v))
          && words.every((w) => text(item).includes(w));
        item.e.hidden = !fits;
        if (fits) n += 1;
      }
      folds.forEach((f) => f.set(state.length > 0));
      for (const g of groups) g.hidden = state.length > 0 && !$$(form.dataset.items, g).some((e) => !e.hidden);
      output.textContent = `${state.length ? `${n} of ` : ""}${items.length} ${form.dataset.word}`;
      if (none) none.hidden = n > 0;
      $$("[type=reset]", form).forEach((b) => { b.disabled = state.length === 0; });
    };
    const write = () => {
      apply();
      const state = new URLSearchParams(chosen()).toString().replaceAll("%2F", "/");
      const address = state ? `#${state}` : location.pathname + location.search;
      try { history.replaceState(null, "", address); } catch (e) { /* some browsers refuse this for local files; the filter still works */ }
    };
    const read = () => {
      const hash = location.hash.slice(1);
      if (!hash.includes("=")) return;
      const state = new URLSearchParams(hash);
      for (const c of controls()) {
        const value = state.get(c.name) || "";
        if (c.type === "radio") c.checked = c.value === value;
        else c.value = value;
      }
      apply();
    };
    show = () => { form.reset(); apply(); };
    form.addEventListener("input", write);
    form.addEventListener("submit", (e) => e.preventDefault());
    form.addEventListener("reset", () => setTimeout(write));
    addEventListener("hashchange", read);
    apply();
    read();
    addEventListener("keydown", (e) => {
      if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea")) return;
      e.preventDefault();
      form.elements.q.focus();
    });
  }

  // a link to an item that the filter hides resets the filter
  const reveal = () => {
    if (!location.hash || location.hash.includes("=")) return;
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch (e) { return; }
    if (target && target.closest("[hidden]")) { show(); target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);

  // sorting: headers become buttons; unknown values stay at the end
  const SUPER = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const number = (s) => {
    const plain = s.replace(/−/g, "-").replace(/·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/, (_, e) => `e${[...e].map((c) => (c === "⁻" ? "-" : SUPER.indexOf(c))).join("")}`);
    return plain.startsWith("∞") ? Infinity : plain.startsWith("-∞") ? -Infinity : Number.parseFloat(plain);
  };
  $$("table.sortable").forEach((table) => $$("thead th", table).forEach((th, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...th.childNodes);
    th.append(button);
    button.addEventListener("click", () => {
      const up = th.getAttribute("aria-sort") !== "ascending";
      $$("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      const numeric = th.classList.contains("num");
      const rows = [...table.tBodies[0].rows].map((row) => {
        const said = row.cells[i].textContent.trim();
        const value = numeric ? number(said) : said;
        return { row, value, known: numeric ? !Number.isNaN(value) : said !== "–" };
      });
      const compare = (x, y) => (numeric ? (x < y ? -1 : x > y ? 1 : 0) : collator.compare(x, y));
      rows.sort((a, b) => b.known - a.known || (a.known ? (up ? 1 : -1) * compare(a.value, b.value) : 0));
      table.tBodies[0].append(...rows.map((r) => r.row));
    });
  }));

  // copying: where a browser refuses it, as of a local file, the line is selected
  const copied = async (line) => {
    try { await navigator.clipboard.writeText(line); return true; } catch (e) { return false; }
  };
  $$(".copy").forEach((b) => b.addEventListener("click", async () => {
    const done = await copied(b.dataset.copy);
    b.focus();
    b.textContent = done ? "Copied" : "Copy manually";
    if (!done) getSelection().selectAllChildren(b.previousElementSibling);
    setTimeout(() => { b.textContent = "Copy"; }, 1500);
  }));

  // before printing, open all details and load all lazy images
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = $$("main details:not([open])");
    opened.forEach((d) => { d.open = true; });
    $$("img[loading=lazy]").forEach((i) => { i.loading = "eager"; });
  });
  addEventListener("afterprint", () => opened.forEach((d) => { d.open = false; }));
  reveal();
})();
