"use strict";
(() => {
  const $ = (q, e = document) => e.querySelector(q);
  const $$ = (q, e = document) => [...e.querySelectorAll(q)];
  const root = document.documentElement;

  // theme: auto follows the system; controls that need this script are hidden without it
  const theme = $("#theme");
  const named = () => {
    theme.textContent = `Theme: ${root.dataset.theme}`;
    theme.setAttribute("aria-label", `Theme: ${root.dataset.theme}. Change it.`);
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    root.dataset.theme = order[(order.indexOf(root.dataset.theme) + 1) % 3];
    try { localStorage.setItem("mobench-theme", root.dataset.theme); } catch (e) { /* storage may be disabled for local files */ }
    named();
  });
  named();

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

  // a job's picture: objective values of its runs, two objectives against each other or each over the steps
  const paths = window.mobenchPaths;
  const figure = $("#paths");
  if (figure && paths && paths.problem) {
    figure.replaceChildren(Object.assign(document.createElement("figcaption"), { textContent: paths.problem }));
    figure.hidden = false;
  }
  if (figure && paths && paths.runs && paths.runs.length) {
    const W = 520, H = 400, L = 52, B = 40, T = 12, R = 12;
    const svg = $("svg", figure);
    const make = (name, attributes, parent, said) => {
      const e = document.createElementNS(svg.namespaceURI, name);
      for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
      if (said !== undefined) e.textContent = said;
      parent.append(e);
      return e;
    };
    const two = paths.runs[0].f[0].length === 2;
    const M = paths.runs[0].f[0].length;
    const last = paths.steps.length - 1;
    const series = two
      ? paths.runs.map((r) => ({ r, points: r.f, said: `${r.preference.length ? `preference ${r.preference.join(", ")}; ` : ""}seed ${r.seed}`, hue: r.preference.length ? r.preference[0] : 0 }))
      : [...Array(M).keys()].map((m) => ({
        points: paths.steps.map((s, t) => {
          const values = paths.runs.map((r) => r.f[t][m]).filter((v) => v !== null);
          return [s, values.length ? values.reduce((a, b) => a + b) / values.length : null];
        }),
        said: `f_${m + 1}, mean of ${paths.runs.length} runs`,
        hue: M > 1 ? m / (M - 1) : 0,
      }));
    const all = (k) => series.flatMap((s) => s.points.map((p) => p[k])).filter((v) => v !== null && Number.isFinite(v));
    const ends = (k) => {
      const values = all(k);
      const low = Math.min(...values), high = Math.max(...values), pad = 0.04 * (high - low || Math.abs(high) || 1);
      return [low - pad, high + pad];
    };
    const [x0, x1] = ends(0), [y0, y1] = ends(1);
    const X = (v) => L + ((v - x0) / (x1 - x0)) * (W - L - R);
    const Y = (v) => H - B - ((v - y0) / (y1 - y0)) * (H - B - T);
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    svg.setAttribute("aria-label", two ? "Paths of the runs in objective space" : "Objective values over the steps");
    const ticks = (low, high) => {
      const raw = (high - low) / 4, size = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= raw);
      const out = [];
      for (let v = Math.ceil(low / step) * step; v <= high; v += step) out.push(Number(v.toPrecision(10)));
      return out;
    };
    make("path", { d: `M${L} ${T}V${H - B}H${W - R}`, class: "axis" }, svg);
    for (const v of ticks(x0, x1)) make("text", { x: X(v), y: H - B + 16, "text-anchor": "middle" }, svg, v);
    for (const v of ticks(y0, y1)) make("text", { x: L - 6, y: Y(v) + 4, "text-anchor": "end" }, svg, v);
    make("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, svg, two ? "f₁" : "step");
    make("text", { x: 12, y: T + 8 }, svg, two ? "f₂" : "f");
    const shade = (hue) => `hsl(${Math.round(265 - 225 * hue)} 70% 48%)`;
    const drawn = series.map((s) => {
      const colour = shade(s.hue);
      const g = make("g", { class: "run", tabindex: -1 }, svg);
      make("title", {}, g, s.said);
      const line = make("path", { fill: "none", stroke: colour }, g);
      const start = s.points[0];
      if (two && start[0] !== null && start[1] !== null) make("rect", { x: X(start[0]) - 2.5, y: Y(start[1]) - 2.5, width: 5, height: 5, stroke: colour, class: "start" }, g);
      const dot = make("circle", { r: 4, fill: colour }, g);
      if (!two) make("text", { x: W - R - 4, y: T + 14 + 14 * series.indexOf(s), "text-anchor": "end", style: `fill:${colour}` }, svg, s.said);
      return { points: s.points, line, dot };
    });
    const bar = document.createElement("label");
    bar.className = "steps";
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: last, value: last });
    slider.setAttribute("aria-label", "Recorded step");
    const said = document.createElement("output");
    bar.append(slider, said);
    figure.append(bar);
    const caption = document.createElement("figcaption");
    const of = paths.total > paths.runs.length ? `The first ${paths.runs.length} of ${paths.total} runs. ` : "";
    const marks = two
      ? "Each line is one run from its start (square) to the step of the slider (dot); point at one for its preference and seed."
      : "Each line is one objective, the mean over the runs, up to the step of the slider (dot).";
    caption.textContent = `${of}${marks}`;
    if (two && paths.runs[0].preference.length) {
      const ramp = document.createElement("span");
      ramp.className = "ramp";
      ramp.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(shade).join(", ")})`;
      const scale = document.createElement("span");
      scale.className = "nb";
      scale.append("0 ", ramp, " 1.");
      caption.append(" Colour: first component of the preference, ", scale);
    }
    figure.append(caption);
    const at = () => {
      const t = Number(slider.value);
      for (const { points, line, dot } of drawn) {
        const seen = points.slice(0, t + 1).filter((p) => p[0] !== null && p[1] !== null);
        line.setAttribute("d", seen.map((p, k) => `${k ? "L" : "M"}${X(p[0]).toFixed(1)} ${Y(p[1]).toFixed(1)}`).join(""));
        const end = seen[seen.length - 1];
        dot.style.display = end ? "" : "none";
        if (end) { dot.setAttribute("cx", X(end[0])); dot.setAttribute("cy", Y(end[1])); }
      }
      said.textContent = `step ${paths.steps[t]} of ${paths.steps[last]}`;
    };
    slider.addEventListener("input", at);
    at();
    figure.hidden = false;
  }

  // copying: the clipboard needs a secure context, which a local file is not in every browser
  const copied = async (line) => {
    try { await navigator.clipboard.writeText(line); return true; } catch (e) { /* fall back to execCommand */ }
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
