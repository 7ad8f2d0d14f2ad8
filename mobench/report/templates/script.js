"use strict";
(() => {
  const $ = (q, e = document) => e.querySelector(q);
  const $$ = (q, e = document) => [...e.querySelectorAll(q)];
  const root = document.documentElement;
  // what needs this script is hidden without it
  $$("#theme, .filters, .runfilters").forEach((e) => { e.hidden = false; });

  // theme: auto follows the system
  const theme = $("#theme");
  const named = () => {
    theme.textContent = `Theme: ${root.dataset.theme}`;
    theme.setAttribute("aria-label", `Theme: ${root.dataset.theme}. Change it.`);
  };
  theme.addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    root.dataset.theme = order[(order.indexOf(root.dataset.theme) + 1) % 3];
    try { localStorage.setItem("mobench-theme", root.dataset.theme); } catch (e) { /* storage may be off for files */ }
    named();
  });
  named();

  // contents: folded on narrow screens
  const toc = $(".toc details");
  const wide = matchMedia("(min-width: 1180px)");
  const fold = () => { toc.open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();

  // claims
  const search = $("#search");
  const state = { verdict: "", paper: "", words: [] };
  const claims = $$(".claim").map((row) => {
    const entry = row.closest(".artifact");
    const paper = entry.closest(".paper");
    const text = `${row.textContent} ${$("header", entry).textContent} ${$("h2", paper).textContent}`.toLowerCase();
    return { row, entry, paper, verdict: row.dataset.verdict, text };
  });
  const apply = () => {
    const active = state.verdict !== "" || state.paper !== "" || state.words.length > 0;
    const keep = new Set();
    let n = 0;
    for (const c of claims) {
      const fits = (!state.verdict || c.verdict === state.verdict)
        && (!state.paper || c.paper.dataset.paper === state.paper)
        && state.words.every((w) => c.text.includes(w));
      c.row.hidden = !fits;
      if (fits) { n += 1; keep.add(c.entry); keep.add(c.paper); }
    }
    $$(".artifact, .paper").forEach((e) => { e.hidden = active && !keep.has(e); });
    $$(".waiting").forEach((e) => { e.hidden = active; });
    const none = $("#nothing");
    if (none) none.hidden = !active || n > 0;
    const paper = state.paper ? ` in ${$("a", $(`.overview button[data-paper="${CSS.escape(state.paper)}"]`).closest("tr")).textContent}` : "";
    const shown = $("#shown");
    if (shown) shown.textContent = active ? `${n} of ${claims.length} claims${paper}` : "";
    $$(".filters button").forEach((b) => {
      b.setAttribute("aria-pressed", String(b.dataset.verdict === state.verdict && (b.dataset.verdict !== "" || !active)));
    });
    $$(".overview .count").forEach((b) => {
      b.setAttribute("aria-pressed", String(active && b.dataset.verdict === state.verdict && b.dataset.paper === state.paper));
    });
  };
  $$("button[data-verdict]").forEach((b) => b.addEventListener("click", () => {
    const everything = b.dataset.verdict === "";
    const again = !everything && b.getAttribute("aria-pressed") === "true";
    state.verdict = again ? "" : b.dataset.verdict;
    state.paper = again ? "" : b.dataset.paper;
    if (everything) { state.words = []; search.value = ""; }
    apply();
    if (b.classList.contains("count") && !again) $(".filters").scrollIntoView({ block: "start" });
  }));
  if (search) search.addEventListener("input", () => {
    state.words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    apply();
  });
  if (claims.length) apply();
  // a link to something that the filter hides shows everything again
  const reveal = () => {
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch (e) { return; }
    const hidden = target && target.closest("[hidden]");
    if (!hidden) return;
    if (hidden.closest(".runs")) { runs.status = ""; runs.words = []; $("#runsearch").value = ""; applyRuns(); }
    else { state.verdict = state.paper = ""; state.words = []; if (search) search.value = ""; apply(); }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);

  // runs
  const runs = { status: "", words: [] };
  const rows = $$(".runs tbody tr").map((row) => ({ row, text: `${row.textContent} ${row.id}`.toLowerCase() }));
  const applyRuns = () => {
    let n = 0;
    for (const r of rows) {
      const fits = (!runs.status || r.row.dataset.status === runs.status) && runs.words.every((w) => r.text.includes(w));
      r.row.hidden = !fits;
      if (fits) n += 1;
    }
    $("#runshown").textContent = n < rows.length ? `${n} of ${rows.length} jobs` : "";
    $$(".runfilters button").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.status === runs.status)));
  };
  $$(".runfilters button").forEach((b) => b.addEventListener("click", () => { runs.status = b.dataset.status; applyRuns(); }));
  const runsearch = $("#runsearch");
  if (runsearch) runsearch.addEventListener("input", () => {
    runs.words = runsearch.value.toLowerCase().split(/\s+/).filter(Boolean);
    applyRuns();
  });

  // sorting: heads become buttons
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const value = (tr, i) => {
    const cell = tr.cells[i];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
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
      const sign = up ? 1 : -1;
      const order = [...table.tBodies[0].rows].sort((a, b) => {
        const x = value(a, i);
        const y = value(b, i);
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : collator.compare(String(x), String(y)));
      });
      table.tBodies[0].append(...order);
    });
  }));

  // copying: the clipboard needs a secure context, which a file is not everywhere
  const copied = async (line) => {
    try { await navigator.clipboard.writeText(line); return true; } catch (e) { /* the old way follows */ }
    const area = document.createElement("textarea");
    area.value = line;
    area.className = "sr";
    document.body.append(area);
    area.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch (e) { done = false; }
    area.remove();
    return done;
  };
  $$(".copy").forEach((b) => b.addEventListener("click", async () => {
    const done = await copied(b.dataset.copy);
    b.focus();
    b.textContent = done ? "Copied" : "Select it";
    if (!done) getSelection().selectAllChildren(b.previousElementSibling);
    setTimeout(() => { b.textContent = "Copy"; }, 1500);
  }));

  // paper has no folds
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = $$("main details:not([open])");
    opened.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((d) => { d.open = false; }));
  reveal();
})();
