// Makes a report's page better where there is JavaScript: a heat map of chosen axes, a table of all rows that can be
// sorted, filtered and shared by its address, and the samples and course of each row.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { axes, metrics, tones, varying, words } = data;
  const rows = data.rows.map((line, id) => {
    const row = { id, values: line[0], metric: line[1], tone: line[2], series: line[3], samples: [line[4], line[5]], median: line[6], axis: -1 };
    if (line.length > 7) {
      [row.base, row.axis, row.from, row.to, row.words, row.ratio, row.low, row.high, row.q, row.gate, row.note, row.more, row.difference, row.n] = line.slice(7);
    }
    return row;
  });
  const compared = rows.some((row) => row.axis >= 0);
  const word = (number) => (number < 0 ? "" : words[number]);
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") made.textContent = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  };
  const svg = (name, attributes = {}, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  // Numbers, as the program prints them.
  const four = (value) => {
    const size = Math.abs(value);
    const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
    return size > 0 && size < 1 ? String(Number(value.toPrecision(4))) : value.toFixed(digits);
  };
  const si = (value) => {
    for (const [factor, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= factor) return four(value / factor) + prefix;
    }
    return four(value);
  };
  const show = (value, unit) => {
    if (value === null || value === undefined) return "–";
    if (unit === "ns") {
      for (const [factor, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
        if (Math.abs(value) >= factor) return `${four(value / factor)} ${name}`;
      }
      return `${four(value)} ns`;
    }
    if (unit === "bytes/s" || unit === "bytes") {
      const rest = unit.slice(5);
      for (const [factor, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
        if (Math.abs(value) >= factor) return `${four(value / factor)} ${name}${rest}`;
      }
      return `${four(value)} B${rest}`;
    }
    return unit && unit !== "1/s" ? `${si(value)} ${unit}` : si(value);
  };
  const change = (ratio) => {
    if (ratio === null || ratio === undefined) return "";
    if (ratio >= 3 || ratio <= 1 / 3) return `${ratio >= 10 ? ratio.toFixed(1) : ratio.toFixed(2)}x`;
    const percent = (ratio - 1) * 100;
    return `${percent >= 0 ? "+" : "−"}${Math.abs(percent).toFixed(2)}%`;
  };
  const effect = (row) => (row.ratio > 0 ? Math.abs(Math.log(row.ratio)) : row.difference ? Infinity : 0);
  const named = varying.length ? varying : axes.map((_, at) => at);
  const cellName = (row) => named.filter((at) => row.values[at] >= 0).map((at) => `${axes[at][0]}=${axes[at][1][row.values[at]]}`).join(" ");
  const fullName = (row) => axes.map(([name, values], at) => {
    if (at === row.axis) return `${name}=${word(row.to)}`;
    return row.values[at] >= 0 ? `${name}=${values[row.values[at]]}` : null;
  }).filter(Boolean).join(",");
  const verdict = (row) => (row.axis < 0 ? "" : word(row.words));
  const pair = (row) => (row.axis < 0 ? "" : `${axes[row.axis][0]}: ${word(row.from)} → ${word(row.to)}`);
  for (const row of rows) row.text = `${cellName(row)} ${metrics[row.metric][0]} ${verdict(row)} ${pair(row)}`.toLowerCase();

  // The state of the page is its address: `#tone=worse&metric=iops&axis.cache=none&text=…&sort=-change&row=17`.
  const state = new Map();
  const readState = () => {
    state.clear();
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (value) state.set(key, value);
  };
  const writeState = () => {
    const text = new URLSearchParams([...state]).toString();
    if (location.hash.slice(1) !== text) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  };
  const set = (key, value) => {
    if (value) state.set(key, value);
    else state.delete(key);
    writeState();
    update();
  };

  const choice = (label, key, options, current) => {
    const list = element("select", { "data-key": key, onchange: (event) => set(key, event.target.value) });
    for (const [value, text] of options) list.append(element("option", { value, text }));
    list.value = current ?? state.get(key) ?? "";
    return element("label", { text: label }, list);
  };

  // The table.
  const ROW = 32;
  const place = document.getElementById("rows");
  const filters = document.getElementById("filters");
  const columns = compared ? [
    ["verdict", "13rem", (row) => row.tone], ["cell", "", cellName], ["metric", "7.5rem", (row) => metrics[row.metric][0]],
    ["baseline", "7rem wide", (row) => row.base], ["candidate", "7rem wide", (row) => row.median],
    ["change", "6rem", (row) => row.ratio], ["size", "8.5rem wide", effect], ["n", "4.5rem wide", (row) => row.n[0] + row.n[1]],
  ] : [
    ["cell", "", cellName], ["metric", "10rem", (row) => metrics[row.metric][0]], ["median", "9rem", (row) => row.median], ["n", "4rem", (row) => row.samples[1].length],
  ];
  let shown = rows;
  let body;
  let scroll;
  const span = (() => {
    const logs = rows.map((row) => (row.ratio > 0 ? Math.abs(Math.log(row.ratio)) : 0)).sort((a, b) => a - b);
    return Math.max(0.05, Math.min(0.3, 1.5 * (logs[Math.floor((logs.length - 1) * 0.95)] || 0)));
  })();
  const forest = (row) => {
    if (!(row.ratio > 0) || row.low === null) return "";
    const at = (ratio) => (60 + Math.max(-1, Math.min(1, (ratio > 0 ? Math.log(ratio) : -span) / span)) * 56).toFixed(1);
    return svg("svg", { class: `forest ${tones[row.tone][0]}`, viewBox: "0 0 120 20", "aria-hidden": "true" },
      svg("path", { class: "zero", d: "M60 1V19" }), svg("path", { class: "line", d: `M${at(row.low)} 10H${at(row.high)}` }),
      svg("circle", { cx: at(row.ratio), cy: 10, r: 3.5 }));
  };
  const line = (row, index) => {
    const [tone, sign] = tones[row.tone];
    const [metric, unit] = metrics[row.metric];
    const cell = element("td", { title: cellName(row) }, element("button", { type: "button", class: "open", "data-row": row.id, text: cellName(row) || "the cell" }));
    const made = element("tr", { "aria-rowindex": index + 2 });
    if (compared) {
      made.append(element("td", { class: tone, text: `${sign} ${verdict(row)}` }), cell, element("td", { text: metric, title: pair(row) }),
        element("td", { class: "num wide", text: show(row.base, unit), title: word(row.from) }), element("td", { class: "num wide", text: show(row.median, unit), title: word(row.to) }),
        element("td", { class: "num", text: change(row.ratio), title: row.low === null ? "" : `95% interval ${change(row.low)} to ${change(row.high)}` }),
        element("td", { class: "wide" }, forest(row)), element("td", { class: "num wide", text: row.n.join(", ") }));
    } else {
      made.append(cell, element("td", { text: metric }), element("td", { class: "num", text: show(row.median, unit) }), element("td", { class: "num", text: row.samples[1].length }));
    }
    return made;
  };
  let window_ = [-1, -1];
  const draw = () => {
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 12);
    const last = Math.min(shown.length, first + Math.ceil(scroll.clientHeight / ROW) + 24);
    if (first === window_[0] && last === window_[1]) return;
    window_ = [first, last];
    const focused = document.activeElement?.dataset?.row;
    const space = (count) => element("tr", { class: "space", "aria-hidden": "true" }, element("td", { colspan: columns.length, style: `height:${count * ROW}px` }));
    const lines = [];
    if (first > 0) lines.push(space(first));
    for (let index = first; index < last; index++) lines.push(line(shown[index], index));
    if (last < shown.length) lines.push(space(shown.length - last));
    body.replaceChildren(...lines);
    if (focused !== undefined) body.querySelector(`[data-row="${focused}"]`)?.focus({ preventScroll: true });
  };
  const buildTable = () => {
    const head = element("tr");
    for (const [name, style] of columns) {
      const [width, wide] = style.split(" ");
      const cell = element("th", { scope: "col", "data-name": name, class: wide ?? "", style: width ? `width:${width}` : "" },
        element("button", { type: "button", text: name, onclick: () => {
          const current = state.get("sort");
          set("sort", current === name ? `-${name}` : current === `-${name}` ? "" : name);
        } }));
      head.append(cell);
    }
    body = element("tbody");
    const table = element("table", { class: "rows" }, element("thead", {}, head), body);
    scroll = element("div", { class: "scroll virtual", tabindex: "0", role: "region", "aria-label": "Rows" }, table);
    scroll.addEventListener("scroll", draw, { passive: true });
    new ResizeObserver(draw).observe(scroll);
    // From row to row by the keyboard, also where the next one is not there yet.
    scroll.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const from = event.target.dataset.row;
      if (!step || from === undefined) return;
      const next = shown[shown.findIndex((row) => row.id === Number(from)) + step];
      if (!next) return;
      event.preventDefault();
      const top = shown.indexOf(next) * ROW;
      if (top < scroll.scrollTop) scroll.scrollTop = top;
      if (top + 2 * ROW > scroll.scrollTop + scroll.clientHeight - ROW) scroll.scrollTop = top + 3 * ROW - scroll.clientHeight;
      draw();
      body.querySelector(`[data-row="${next.id}"]`)?.focus({ preventScroll: true });
    });
    scroll.addEventListener("click", (event) => {
      const row = event.target.dataset.row;
      if (row !== undefined) set("row", row);
    });
    const told = element("p", { class: "count", role: "status", id: "count" });
    place.replaceChildren(told, scroll);
  };
  const buildFilters = () => {
    const seen = (key) => [...new Set(rows.map(key))];
    const list = [];
    if (compared) {
      const tonesSeen = seen((row) => row.tone).sort((a, b) => a - b);
      const names = { worse: "worse", suspected: "suspected", better: "better", unsure: "inconclusive", nothing: "nothing measured", same: "the same", plain: "measured" };
      list.push(choice("Verdict", "tone", [["", "all"], ...tonesSeen.map((tone) => [tones[tone][0], `${tones[tone][1]} ${names[tones[tone][0]]}`])]));
      const pairs = seen(pair).sort();
      if (pairs.length > 1) list.push(choice("Compared", "pair", [["", "all"], ...pairs.slice(0, 500).map((name) => [name, name])]));
    }
    if (metrics.length > 1) list.push(choice("Metric", "metric", [["", "all"], ...[...new Set(metrics.map(([name]) => name))].map((name) => [name, name])]));
    for (const at of varying) {
      const used = new Set(rows.map((row) => row.values[at]));
      const values = axes[at][1].filter((_, value) => used.has(value));
      if (values.length > 1) list.push(choice(axes[at][0], `axis.${axes[at][0]}`, [["", "all"], ...values.slice(0, 1000).map((value) => [value, value])]));
    }
    const text = element("input", { type: "search", "data-key": "text", value: state.get("text") ?? "", oninput: (event) => set("text", event.target.value) });
    list.push(element("label", { text: "Text" }, text));
    list.push(element("button", { type: "button", text: "Show all", onclick: () => {
      for (const key of [...state.keys()]) if (key === "tone" || key === "pair" || key === "metric" || key === "text" || key.startsWith("axis.")) state.delete(key);
      writeState();
      update();
    } }));
    filters.replaceChildren(element("div", { class: "controls", role: "search", "aria-label": "Rows" }, ...list));
  };
  const filter = () => {
    const tone = state.has("tone") ? tones.findIndex(([name]) => name === state.get("tone")) : -1;
    const metric = state.get("metric");
    const compared_ = state.get("pair");
    const text = (state.get("text") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = axes.map(([name, values]) => (state.has(`axis.${name}`) ? values.indexOf(state.get(`axis.${name}`)) : null));
    shown = rows.filter((row) => (tone < 0 || row.tone === tone) && (!metric || metrics[row.metric][0] === metric) && (!compared_ || pair(row) === compared_)
      && wanted.every((value, at) => value === null || row.values[at] === value) && text.every((part) => row.text.includes(part)));
    const sort = state.get("sort") ?? "";
    const column = columns.find(([name]) => name === sort.replace(/^-/, ""));
    if (column) {
      const sign = sort.startsWith("-") ? -1 : 1;
      const keys = new Map(shown.map((row) => [row, column[2](row)]));
      shown.sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        // What has no value is at the end, whichever way.
        if (x === null || x === undefined || y === null || y === undefined) return (x === null || x === undefined) - (y === null || y === undefined) || a.id - b.id;
        return sign * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y) || a.id - b.id;
      });
    }
    for (const head of place.querySelectorAll("th")) {
      const name = head.dataset.name;
      if (sort === name) head.setAttribute("aria-sort", "ascending");
      else if (sort === `-${name}`) head.setAttribute("aria-sort", "descending");
      else head.removeAttribute("aria-sort");
    }
    place.querySelector("table").setAttribute("aria-rowcount", shown.length + 1);
    document.getElementById("count").textContent = shown.length === rows.length ? `${rows.length} rows` : `${shown.length} of ${rows.length} rows`;
  };

  // The heat map.
  const heat = document.getElementById("heat");
  const MAP_MAX = 6000;
  const buildMap = () => {
    if (!heat) return;
    // Between versions first, then the worst.
    const best = new Map();
    for (const row of rows) {
      const key = `${row.metric} ${pair(row)}`;
      const rank = row.tone + (row.axis >= 0 && axes[row.axis][0] !== "version" ? tones.length : 0);
      if (!(best.get(key) <= rank)) best.set(key, rank);
    }
    const keys = [...best.keys()].sort((a, b) => best.get(a) - best.get(b));
    const title = (key) => {
      const [number, ...rest] = key.split(" ");
      return [metrics[number][0], ...rest].join(" ");
    };
    const key = keys.includes(state.get("map")) ? state.get("map") : keys[0];
    const list = [choice("Shown", "map", keys.slice(0, 500).map((key) => [key, title(key)]), key)];
    const rowAxes = [], columnAxes = [], fixed = [];
    const ofKey = rows.filter((row) => `${row.metric} ${pair(row)}` === key);
    for (const at of varying) {
      const name = axes[at][0];
      // The compared axis is none of its cells.
      if (ofKey.every((row) => row.values[at] < 0)) continue;
      const byLayout = data.columnAxes.includes(at) ? "columns" : data.rowAxes.includes(at) ? "rows" : "worst";
      const current = state.get(`map.${name}`) ?? byLayout;
      if (current === "rows") rowAxes.push(at);
      else if (current === "columns") columnAxes.push(at);
      else if (current.startsWith("=")) fixed.push([at, axes[at][1].indexOf(current.slice(1))]);
      list.push(choice(name, `map.${name}`, [["rows", "in rows"], ["columns", "in columns"], ["worst", "the worst of all"], ...axes[at][1].slice(0, 1000).map((value) => [`=${value}`, `only ${value}`])], current));
    }
    const controls = element("div", { class: "controls", role: "group", "aria-label": "Layout of the map" }, ...list);
    const spot = new Map();
    for (const row of ofKey) {
      if (fixed.some(([at, value]) => row.values[at] !== value)) continue;
      const line = rowAxes.map((at) => row.values[at]).join(), column = columnAxes.map((at) => row.values[at]).join();
      if (!spot.has(line)) spot.set(line, new Map());
      const of = spot.get(line);
      if (!of.has(column)) of.set(column, []);
      of.get(column).push(row);
    }
    const order = (a, b) => {
      const [x, y] = [a.split(",").map(Number), b.split(",").map(Number)];
      for (let at = 0; at < x.length; at++) if (x[at] !== y[at]) return x[at] - y[at];
      return 0;
    };
    const heads = [...new Set([...spot.values()].flatMap((of) => [...of.keys()]))].sort(order);
    const label = (list, text) => (list.length ? text.split(",").map((value, at) => (value < 0 ? "–" : axes[list[at]][1][value])).join(" ") : "all");
    const lines = [...spot.keys()].sort(order);
    if (lines.length * heads.length > MAP_MAX) {
      heat.replaceChildren(controls, element("p", { text: `This would be a map of ${lines.length} × ${heads.length} places: put an axis to “the worst of all”, or choose a value.` }));
      return;
    }
    const names = (list) => list.map((at) => axes[at][0]).join(" ");
    const head = element("tr", {}, element("th", { scope: "col", text: `${names(rowAxes)} \\ ${names(columnAxes)}` }), ...heads.map((text) => element("th", { scope: "col", text: label(columnAxes, text) })));
    const body = element("tbody");
    const unit = metrics[key.split(" ")[0]][1];
    for (const text of lines) {
      const made = element("tr", {}, element("th", { scope: "row", text: label(rowAxes, text) }));
      for (const column of heads) {
        const found = spot.get(text).get(column);
        if (!found) { made.append(element("td")); continue; }
        const worst = found.reduce((a, b) => (b.tone < a.tone || (b.tone === a.tone && effect(b) > effect(a)) ? b : a));
        const [tone, sign] = tones[worst.tone];
        const told = worst.ratio != null ? `${sign} ${change(worst.ratio)}` : worst.axis < 0 ? show(worst.median, unit) : sign;
        const button = element("button", { type: "button", "data-row": worst.id, text: told, title: cellName(worst), onclick: () => set("row", String(worst.id)) });
        const cell = element("td", { class: tone }, button);
        if (found.length > 1) cell.append(" ", element("small", { text: `${found.filter((row) => row.tone === worst.tone).length}/${found.length}` }));
        made.append(cell);
      }
      body.append(made);
    }
    const [metric, , better] = metrics[key.split(" ")[0]];
    const table = element("table", { class: "heat" }, element("caption", { text: `${title(key)} (${metric}: ${better} is better)` }), element("thead", {}, head), body);
    const focused = document.activeElement?.dataset?.key;
    heat.replaceChildren(controls, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Heat map" }, table));
    if (focused?.startsWith("map")) heat.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  };

  // One row: its samples, its course, what explains it.
  const scale = (values, from, to) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) return null;
    const margin = high > low ? 0.04 * (high - low) : 0.02 * Math.abs(low) || 1;
    low -= margin; high += margin;
    const at = (value) => from + Math.max(0, Math.min(1, (value - low) / (high - low))) * (to - from);
    const rough = 10 ** Math.floor(Math.log10((high - low) / 5));
    const step = [1, 2, 5, 10].map((factor) => factor * rough).find((step) => (high - low) / step <= 5) ?? high - low;
    const ticks = [];
    for (let number = Math.ceil(low / step); number * step <= high; number++) ticks.push(number * step);
    return { at, ticks };
  };
  const short = (name) => (name.length > 15 ? `${name.slice(0, 14)}…` : name);
  const text = (attributes, words) => svg("text", attributes, words);
  const median = (values) => {
    const list = values.filter((value) => value !== null).sort((a, b) => a - b);
    return list.length ? (list[(list.length - 1) >> 1] + list[list.length >> 1]) / 2 : null;
  };
  const strip = (row) => {
    const unit = metrics[row.metric][1];
    const names = row.axis < 0 ? ["", "samples"] : [word(row.from), word(row.to)];
    const sides = [0, 1].filter((side) => row.samples[side].length);
    const own = scale(row.samples.flat(), 116, 704);
    if (!own) return null;
    const medians = row.samples.map(median);
    const height = 30 + 34 * sides.length;
    const title = `Samples of ${sides.map((side) => `${names[side]}: ${show(medians[side], unit)} (n=${row.samples[side].length})`).join("; ")}`;
    const chart = svg("svg", { class: "chart strip", viewBox: `0 0 720 ${height}`, role: "img" }, svg("title", {}, title), svg("path", { class: "axis", d: `M116 ${height - 18}H704` }));
    for (const tick of own.ticks) chart.append(svg("path", { class: "grid", d: `M${own.at(tick)} 4V${height - 18}` }), text({ class: "tick", x: own.at(tick), y: height - 4 }, show(tick, unit)));
    sides.forEach((side, number) => {
      const y = 20 + 34 * number, tone = ["base", "cand"][side];
      chart.append(text({ x: 0, y: y + 4 }, short(names[side])));
      if (side === 1 && row.low != null && medians[0] !== null) {
        const [low, high] = [own.at(row.low * medians[0]), own.at(row.high * medians[0])];
        chart.append(svg("rect", { class: "ci", x: low, y: y - 14, width: Math.max(1, high - low), height: 28 }));
      }
      row.samples[side].forEach((value, at) => chart.append(svg("circle", { class: tone, cx: own.at(value), cy: y + 9 * (((at * 0.618034) % 1) * 2 - 1), r: 3 })));
      chart.append(svg("path", { class: `median ${tone}`, d: `M${own.at(medians[side])} ${y - 14}V${y + 14}` }));
    });
    return chart;
  };
  const POINTS = 400;
  const course = (row) => {
    const series = data.series[row.series];
    if (!series || series[0].length < 3) return null;
    const unit = metrics[row.metric][1];
    const from = Math.max(0, series[0].length - POINTS);
    const points = series[0].slice(from);
    const own = scale(points.map((point) => point[1]), 164, 30);
    if (!own) return null;
    const step = 588 / (Math.max(2, points.length) - 1);
    const at = (index) => Math.max(112, Math.min(708, 116 + (index - from) * step));
    const changes = series[1].filter((change) => change[0] > from);
    const chart = svg("svg", { class: "chart course", viewBox: "0 0 720 190", role: "img" }, svg("title", {}, `Course of ${metrics[row.metric][0]} over ${points.length} versions, ${changes.length} where its level moved`));
    for (const tick of own.ticks) chart.append(svg("path", { class: "grid", d: `M116 ${own.at(tick)}H704` }), text({ x: 0, y: own.at(tick) + 4 }, show(tick, unit)));
    for (const [index, [first, last], ratio, version] of changes) {
      const x = at(index - 0.5);
      chart.append(svg("rect", { class: "set", x: at(first - 1), y: 30, width: at(last) - at(first - 1), height: 134 }), svg("path", { class: "change", d: `M${x} 30V164` }),
        text({ class: "told", x, y: 20, "text-anchor": x > 504 ? "end" : "start" }, `${change(ratio)} ${word(version)}`));
    }
    const bounds = [from, ...changes.map((change) => change[0]), from + points.length];
    for (let part = 1; part < bounds.length; part++) {
      const level = median(series[0].slice(bounds[part - 1], bounds[part]).map((point) => point[1]));
      if (level !== null) chart.append(svg("path", { class: "level", d: `M${at(bounds[part - 1] - 0.4)} ${own.at(level)}H${at(bounds[part] - 0.6)}` }));
    }
    points.forEach(([version, value], index) => {
      if (value !== null) chart.append(svg("circle", { class: "cand", cx: at(from + index), cy: own.at(value), r: 3 }, svg("title", {}, `${word(version)}: ${show(value, unit)}`)));
    });
    chart.append(text({ x: 116, y: 184 }, short(word(points[0][0]))), text({ x: 704, y: 184, "text-anchor": "end" }, short(word(points[points.length - 1][0]))));
    return chart;
  };
  const dialog = element("dialog", { "aria-labelledby": "row-title" });
  document.body.append(dialog);
  dialog.addEventListener("close", () => {
    const row = state.get("row");
    set("row", "");
    (body?.querySelector(`[data-row="${row}"]`) ?? heat?.querySelector(`[data-row="${row}"]`))?.focus({ preventScroll: true });
  });
  const details = (title, header, lines) => element("details", {}, element("summary", { text: title }),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, element("table", {},
      element("thead", {}, element("tr", {}, ...header.map((name) => element("th", { scope: "col", text: name })))),
      element("tbody", {}, ...lines.map((line) => element("tr", {}, ...line.map((value) => element("td", { text: value }))))))));
  const open = () => {
    const row = rows[Number(state.get("row"))];
    if (!state.has("row") || !row) {
      if (dialog.open) dialog.close();
      return;
    }
    const [metric, unit, better] = metrics[row.metric];
    const [tone, sign] = tones[row.tone];
    const parts = [element("h2", { id: "row-title", text: `${metric} ${change(row.ratio)}` }), element("p", { class: "cell", text: cellName(row) })];
    if (row.axis >= 0) {
      const interval = row.low === null ? "" : `; 95% interval ${change(row.low)} to ${change(row.high)}`;
      parts.push(element("p", {}, element("span", { class: tone, text: `${sign} ${verdict(row)}` }), ` ${pair(row)}`),
        element("p", { text: `${show(row.base, unit)} → ${show(row.median, unit)}${interval}; ${row.n[0]} and ${row.n[1]} samples${row.q === null ? "" : `; q ${row.q.toPrecision(2)}`} (${better} is better)${row.gate ? "; it gates" : ""}.` }));
      if (row.note >= 0) parts.push(element("p", { class: "note", text: word(row.note) }));
      if (row.more) parts.push(element("p", { text: `About ${row.more} more repetitions a side would settle it.` }));
    }
    const samples = strip(row);
    if (samples) {
      parts.push(element("figure", {}, samples, element("figcaption", { text: row.axis < 0 ? "Samples and their median" : "Samples of both sides with their medians; the shaded band is the 95% interval of the change" })));
      const lines = Array.from({ length: Math.max(...row.samples.map((side) => side.length)) }, (_, at) => [at + 1, ...row.samples.map((side) => (at < side.length ? show(side[at], unit) : ""))]);
      parts.push(details("Samples as a table", ["", row.axis < 0 ? "" : word(row.from), row.axis < 0 ? "value" : word(row.to)], lines));
    } else parts.push(element("p", { text: "No samples are stored." }));
    const past = course(row);
    if (past) {
      parts.push(element("figure", {}, past, element("figcaption", { text: "Its course over versions; a band is where a change may be (95%)" })));
      parts.push(details("Course as a table", ["version", "measured", "median", "n"], data.series[row.series][0].map(([version, value, n, at]) => [word(version), word(at), show(value, unit), n])));
    }
    parts.push(element("p", { text: "Its commands, and what they depend on:" }), element("pre", { tabindex: "0", text: `${data.command} '${fullName(row).replaceAll("'", "'\\''")}'` }),
      element("form", { method: "dialog" }, element("button", { text: "Close" })));
    dialog.replaceChildren(...parts);
    if (!dialog.open) dialog.showModal();
  };

  const update = () => {
    for (const field of filters?.querySelectorAll("[data-key]") ?? []) {
      const value = state.get(field.dataset.key) ?? "";
      if (field.value !== value) field.value = value;
    }
    if (body) {
      filter();
      window_ = [-1, -1];
      draw();
    }
    const layout = JSON.stringify([...state].filter(([key]) => key.startsWith("map")));
    if (layout !== drawn) {
      drawn = layout;
      buildMap();
    }
    open();
  };
  let drawn = null;
  // A link to rows of the table is an address of its state.
  addEventListener("hashchange", () => {
    if (location.hash && !location.hash.includes("=")) return;
    readState();
    update();
    document.getElementById("verdicts")?.scrollIntoView();
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details:not(.reproduce)").forEach((part) => { part.open = true; }));
  readState();
  if (place && rows.length) {
    buildTable();
    buildFilters();
  }
  update();
})();
