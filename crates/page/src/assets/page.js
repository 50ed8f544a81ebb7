// Shows the states that the node sends. Texts of peers are set by textContent alone, and never become markup.
"use strict";

const $ = (id) => document.getElementById(id);
const TOKEN = "chunkcomm-page-token";
let selected = "", token = "", last = null, lastAt = 0, broken = 0;

/** Takes the token out of the address, so that it stays out of the history; the tab keeps it. */
function takeToken() {
  const given = /^#([0-9a-f]{32})$/.exec(location.hash);
  if (given) {
    token = given[1];
    try { sessionStorage.setItem(TOKEN, token); } catch { /* It lasts as long as the page. */ }
    history.replaceState(null, "", location.pathname);
  } else if (!token) {
    try { token = sessionStorage.getItem(TOKEN) || ""; } catch { /* There is none. */ }
  }
  return given !== null;
}

/** Draws a part; what is wrong with it leaves the others as they are. */
function guarded(draw) {
  try { draw(); return true; } catch (error) { broken += 1; console.error(error); return false; }
}

// ---- numbers ----

const number = (n) => (Number.isFinite(n) ? Math.round(n).toLocaleString("en-GB") : "–");

function scaled(n, step, units) {
  if (!Number.isFinite(n)) return "–";
  let at = 0;
  while (Math.abs(n) >= step && at < units.length - 1) { n /= step; at += 1; }
  const digits = n >= 100 || (at === 0 && Number.isInteger(n)) ? 0 : n >= 10 ? 1 : 2;
  return n.toFixed(digits) + (units[at] ? " " + units[at] : "");
}

const bytes = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const rate = (n) => (n > 0 && n < 0.005 ? "< 0.01" : scaled(n, 1000, ["", "k", "M", "G"])) + "/s";

function time(us) {
  if (us < 1000) return us + " µs";
  if (us < 1e6) return scaled(us / 1000, 1e9, ["ms"]);
  if (us < 120e6) return scaled(us / 1e6, 1e9, ["s"]);
  const s = Math.round(us / 1e6), h = Math.floor(s / 3600), m = Math.floor((s % 3600) / 60);
  return h ? h + " h " + m + " min" : m + " min " + (s % 60) + " s";
}

const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

// ---- elements, which stay where they are, so that focus and scrolling do ----

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function child(parent, at, tag) {
  let element = parent.children[at];
  if (!element || element.tagName !== tag.toUpperCase()) {
    const made = document.createElement(tag);
    if (element) parent.replaceChild(made, element); else parent.append(made);
    element = made;
  }
  return element;
}

function keep(parent, count) {
  while (parent.children.length > count) parent.lastElementChild.remove();
}

const STATES = { Idle: "s-idle", Busy: "s-busy", Waits: "s-waits", Trouble: "s-trouble", Gone: "s-gone" };

/** Shows a cell of a report: a text, or an object with one of its kinds. */
function show(element, cell) {
  const [kind, value] = typeof cell === "string" ? [cell, null] : Object.entries(cell)[0];
  let text = "–", state = "", meter = null;
  if (kind === "Text") text = value;
  else if (kind === "Count") text = number(value);
  else if (kind === "Bytes") text = bytes(value);
  else if (kind === "Rate") text = rate(value);
  else if (kind === "Micros") text = time(value);
  else if (kind === "Share") { text = (100 * value).toFixed(value < 0.1 && value > 0 ? 1 : 0) + " %"; meter = value; }
  else if (kind === "State") { text = value[1]; state = STATES[value[0]] || ""; }
  if (meter === null) {
    if (element.children.length) element.textContent = "";
    setText(element, text);
  } else {
    if (element.children.length !== 2) {
      element.textContent = "";
      const bar = document.createElement("span");
      bar.className = "meter";
      bar.append(document.createElement("i"));
      element.append(bar, document.createElement("span"));
    }
    element.firstElementChild.firstElementChild.style.width = (100 * meter) + "%";
    setText(element.lastElementChild, text);
  }
  if (element.dataset.state !== state) {
    if (element.dataset.state) element.classList.remove(element.dataset.state);
    if (state) element.classList.add(state);
    element.dataset.state = state;
  }
  element.classList.toggle("nothing", kind === "Nothing");
  return kind === "Nothing" ? "" : kind === "Text" || kind === "State" ? "text" : "number";
}

/** Fills a table; `rows` have cells, and perhaps a class as `mark`. */
function fill(table, columns, rows) {
  if (!rows.length) { table.textContent = ""; return; }
  const head = child(child(table, 0, "thead"), 0, "tr"), body = child(table, 1, "tbody");
  columns.forEach((name, at) => { const th = child(head, at, "th"); th.scope = "col"; setText(th, name); });
  keep(head, columns.length);
  const kinds = columns.map(() => "");
  rows.forEach((row, at) => {
    const tr = child(body, at, "tr");
    const mark = row.mark || "";
    if (tr.className !== mark) tr.className = mark;
    row.forEach((cell, column) => {
      kinds[column] = show(child(tr, column, "td"), cell) || kinds[column];
    });
    keep(tr, row.length);
  });
  keep(body, rows.length);
  for (const tr of [head, ...body.children]) {
    kinds.forEach((kind, column) => {
      tr.children[column].classList.toggle("text", kind === "text");
      tr.children[column].classList.toggle("number", kind === "number");
    });
  }
}

function facts(dl, list) {
  list.forEach(([name, cell], at) => {
    const div = child(dl, at, "div");
    setText(child(div, 0, "dt"), name);
    show(child(div, 1, "dd"), cell);
    div.classList.toggle("wide", typeof cell === "object" && "Share" in cell);
  });
  keep(dl, list.length);
}

const text = (value) => ({ Text: value }), count = (value) => ({ Count: value });
const micros = (value) => (value === null || value === undefined ? "Nothing" : { Micros: value });
const state = (name, words) => ({ State: [name, words] });
const leftOut = (n, what) => (n ? number(n) + " more " + what + " are not shown." : "");

function panel(id, columns, rows, note) {
  fill($(id + "-table"), columns, rows);
  $(id + "-none").hidden = rows.length > 0;
  const counted = $(id + "-count");
  if (counted) setText(counted, rows.length ? number(rows.length) : "");
  if ($(id + "-left-out")) setText($(id + "-left-out"), note || "");
}

// ---- panels ----

let names = new Map();
const nameOf = (key) => names.get(key) || key;
const order = new Intl.Collator("en", { numeric: true }).compare;

function drawTile(tile, member, shown, wanted) {
  tile.dataset.standing = member.standing;
  tile.dataset.reports = member.reports;
  tile.setAttribute("aria-selected", member.key === shown.selected);
  const [name, more, speed] = tile.children;
  setText(name, member.name + (member.key === shown.here ? " (this page)" : ""));
  const where = [member.host, member.pid ? "process " + member.pid : ""].filter(Boolean).join(" · ");
  setText(more, where);
  const words = { here: "", cut_off: "cut off", left: "left", gone: "gone" }[member.standing];
  let line = words;
  if (words && member.since_ms) line += " at " + clock(member.since_ms);
  if (!words) {
    line = member.messages === null ? "no report" : rate(member.messages).replace("/s", " msg/s") + " · " + bytes(member.bytes) + "/s";
    if (member.waits) line = "◐ " + member.waits + (member.waits > 1 ? " waits · " : " wait · ") + line;
    if (member.age_ms > 5000) line = "▲ silent for " + time(1000 * member.age_ms);
  }
  speed.classList.toggle("badge", member.waits > 0 || member.age_ms > 5000);
  setText(speed, line);
  tile.title = [member.name, where, line, member.why].filter(Boolean).join("\n");
  tile.hidden = wanted !== "" && !tile.title.toLowerCase().includes(wanted);
}

function members(shown) {
  const grid = $("grid"), wanted = $("filter").value.toLowerCase();
  const [own, ...others] = shown.members;
  const byName = (a, b) => order(a.name, b.name);
  const list = shown.is_cluster ? shown.members : own ? [own, ...others.sort(byName)] : [];
  grid.classList.toggle("many", list.length > 48);
  const old = new Map([...grid.children].map((tile) => [tile.dataset.key, tile]));
  let previous = null;
  for (const member of list) {
    let tile = old.get(member.key);
    old.delete(member.key);
    if (!tile) {
      tile = document.createElement("button");
      tile.type = "button";
      tile.className = "tile";
      tile.dataset.key = member.key;
      tile.setAttribute("role", "option");
      for (const part of ["name", "more", "rate"]) {
        const span = document.createElement("span");
        span.className = part;
        tile.append(span);
      }
      tile.addEventListener("click", () => select(member.key));
    }
    const place = previous ? previous.nextSibling : grid.firstChild;
    if (tile !== place) grid.insertBefore(tile, place);
    previous = tile;
    guarded(() => drawTile(tile, member, shown, wanted));
  }
  old.forEach((tile) => tile.remove());
  const inGrid = grid.contains(document.activeElement);
  const first = [...grid.children].find((tile) => tile.getAttribute("aria-selected") === "true") || grid.firstElementChild;
  for (const tile of grid.children) tile.tabIndex = (inGrid ? tile === document.activeElement : tile === first) ? 0 : -1;
  const by = (standing) => list.filter((member) => member.standing === standing).length;
  const parts = [number(by("here")) + " here"];
  for (const [standing, words] of [["cut_off", "cut off"], ["gone", "gone"], ["left", "left"]]) {
    if (by(standing)) parts.push(number(by(standing)) + " " + words);
  }
  setText($("members-count"), parts.join(" · "));
  setText($("members-left-out"), leftOut(shown.members_left_out, "members"));
}

function links(node) {
  const columns = ["peer", "state", "heard", "round trip", "sends", "receives", "bytes out/s", "bytes in/s", "messages/packet",
    "flushes", "credit waits", "resent", "kept", "waits for"];
  const rows = [...node.links].sort((a, b) => a.is_well - b.is_well || order(a.peer, b.peer));
  panel("links", columns, rows.map((link) => {
    const r = link.rates, all = link.flushes.reduce((sum, it) => sum + it[1], 0);
    const flushes = link.flushes.filter((it) => it[1]).sort((a, b) => b[1] - a[1]).slice(0, 3)
      .map(([reason, n]) => reason + " " + Math.round(100 * n / all) + " %").join(", ");
    const mean = link.counts.message_packets_sent ? link.counts.messages_sent / link.counts.message_packets_sent : null;
    const packed = r && r.messages_per_packet ? r.messages_per_packet : mean;
    const row = [text(link.peer), state(link.is_well ? "Busy" : link.state === "closing" ? "Idle" : "Trouble", link.state),
      micros(link.silence_us), micros(link.round_trip_us),
      r ? { Rate: r.messages_sent } : "Nothing", r ? { Rate: r.messages_received } : "Nothing",
      r ? { Bytes: r.bytes_sent } : "Nothing", r ? { Bytes: r.bytes_received } : "Nothing",
      packed ? { Text: packed.toFixed(1) } : "Nothing", flushes ? text(flushes) : "Nothing",
      count(link.counts.credit_waits), count(link.counts.packets_resent), { Bytes: link.kept_bytes },
      link.waits_for ? state("Waits", link.waits_for) : link.trouble ? text(link.trouble) : "Nothing"];
    row.mark = link.is_well ? (link.waits_for ? "waiting" : "") : "bad";
    return row;
  }), leftOut(node.links_left_out, "links"));
}

function channels(node) {
  const columns = ["channel", "to or from", "backlog", "oldest", "unread", "sent", "not acknowledged", "credit", "waits for"];
  panel("channels", columns, node.channels.map((it) => {
    const row = [text(it.channel), text((it.is_sending ? "→ " : "← ") + it.peer),
      it.is_sending ? count(it.staged) : "Nothing", micros(it.oldest_us),
      it.is_sending ? "Nothing" : { Bytes: it.unread_bytes }, it.is_sending ? count(it.sent) : "Nothing",
      it.is_sending ? count(it.unacknowledged) : "Nothing", it.is_sending ? { Bytes: it.credit_bytes } : "Nothing",
      it.waits_for ? state("Waits", it.waits_for) : it.is_awaited ? state("Idle", "its receiver waits for messages") : "Nothing"];
    row.mark = it.waits_for ? "waiting" : "";
    return row;
  }), leftOut(node.channels_left_out, "channels"));
}

function log(shown) {
  const states = { came: "Busy", back: "Busy", "cut off": "Waits", left: "Idle", gone: "Gone", note: "Idle" };
  panel("events", ["at", "what", "who", ""], shown.events.map((it) =>
    [text(clock(it.at_ms)), state(states[it.kind] || "Idle", it.kind), text(it.who), text(it.text)]));
  panel("warnings", ["for", "at", "node", "warning"], shown.warnings.map(([key, it]) =>
    [micros(it.age_us), text(nameOf(key)), text(it.node), text(it.text)]));
}

function waits(shown) {
  panel("waits", ["node", "waits for", "for"], shown.waits.map(([key, it]) => {
    const row = [text(nameOf(key)), it.is_cycle ? state("Trouble", it.what) : text(it.what), micros(it.for_us)];
    row.mark = it.is_cycle ? "bad" : it.for_us > 2e6 ? "waiting" : "";
    return row;
  }));
}

// ---- sections of the report: facts, tables, a timeline ----

function drawSection(box, key, section, shown) {
  box.className = section.timeline ? "panel has-timeline" : "panel";
  const head = child(box, 0, "h2");
  setText(child(head, 0, "span"), section.kind + (section.name ? " " + section.name : ""));
  const where = child(head, 1, "span");
  where.className = "of-kind";
  setText(where, shown.members.length > 1 ? "at " + nameOf(key) : "");
  const list = child(box, 1, "dl");
  list.className = "facts";
  facts(list, section.facts.filter((it) => it.value !== "Nothing").map((it) => [it.name, it.value]));
  let next = 2;
  if (section.timeline) {
    const holder = child(box, next, "div");
    next += 1;
    timeline(holder, section.timeline);
  }
  for (const table of section.tables) {
    setText(child(box, next, "h3"), table.name + (table.left_out ? ", " + number(table.left_out) + " more rows are not shown" : ""));
    const scroll = child(box, next + 1, "div");
    if (!scroll.classList.contains("scroll")) {
      scroll.textContent = "";
      scroll.className = "scroll";
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
    }
    scroll.setAttribute("aria-label", table.name);
    const rows = table.rows.map((row) => {
      const cells = [...row], gone = row.some((it) => it.State && (it.State[0] === "Gone" || it.State[0] === "Trouble"));
      cells.mark = gone ? "bad" : "";
      return cells;
    });
    fill(child(scroll, 0, "table"), table.columns, rows);
    next += 2;
  }
  keep(box, next);
}

function sections(shown) {
  const root = $("sections");
  shown.sections.forEach(([key, section], at) => {
    const box = child(root, at, "section");
    if (!guarded(() => drawSection(box, key, section, shown))) box.textContent = "This part of the report cannot be shown.";
  });
  keep(root, shown.sections.length);
  setText($("sections-left-out"), leftOut(shown.sections_left_out, "parts of reports"));
}

const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => { if (last) render(last); });
const PALETTE = [211, 28, 152, 284, 52, 188, 340, 96];

/** Draws the lanes of a timeline, the last minute or what there is of it. */
function timeline(holder, it) {
  if (holder.className !== "timeline") {
    holder.textContent = "";
    holder.className = "timeline";
    const lanes = document.createElement("div"), axis = document.createElement("div");
    lanes.className = "lanes";
    lanes.tabIndex = 0;
    lanes.setAttribute("role", "img");
    lanes.append(document.createElement("canvas"));
    axis.className = "axis";
    axis.append(document.createElement("span"), document.createElement("span"));
    holder.append(lanes, axis);
  }
  const [lanes, axis] = holder.children, canvas = lanes.firstElementChild;
  const window = Math.min(60e6, Math.max(1e6, it.now_us)), from = it.now_us - window;
  const width = Math.max(200, lanes.clientWidth), label = Math.min(200, Math.round(width * 0.28));
  const lines = it.lanes.map(() => 1);
  for (const span of it.spans) lines[span.lane] = Math.max(lines[span.lane] || 1, span.line + 1);
  const total = lines.reduce((sum, n) => sum + n, 0), line = total > 40 ? 7 : total > 12 ? 12 : 16;
  const tops = [];
  let height = 2;
  lines.forEach((n) => { tops.push(height); height += Math.max(n * line, it.lanes.length > 40 ? 11 : 15) + 3; });
  height = Math.min(height, 30000);
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
  }
  const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(name).trim();
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "top";
  const x = (us) => label + (width - label - 2) * Math.max(0, us - from) / window;
  it.lanes.forEach((name, at) => {
    pen.fillStyle = colour("--bar");
    pen.globalAlpha = 0.45;
    pen.fillRect(label, tops[at], width - label - 2, lines[at] * line);
    pen.globalAlpha = 1;
    pen.fillStyle = colour("--soft");
    pen.save();
    pen.beginPath();
    pen.rect(0, tops[at] - 1, label - 6, 15);
    pen.clip();
    pen.fillText(name, 4, tops[at] + (line > 12 ? 2 : 0));
    pen.restore();
  });
  const light = dark.matches ? 62 : 46;
  for (const span of it.spans) {
    if (span.end_us < from || tops[span.lane] === undefined) continue;
    const left = x(span.begin_us), right = Math.max(left + 1, x(span.end_us));
    const top = tops[span.lane] + span.line * line;
    if (span.count === 0) {
      // Not answered yet.
      pen.fillStyle = colour("--soft");
      pen.globalAlpha = 0.35;
      pen.fillRect(left, top + line / 2 - 1, right - left, 2);
      pen.globalAlpha = 1;
    } else {
      pen.fillStyle = "hsl(" + PALETTE[span.first % PALETTE.length] + " 55% " + (light + 5 * (Math.floor(span.first / 8) % 2)) + "%)";
      pen.fillRect(left, top + 1, Math.max(1, right - left - 0.5), line - 2);
    }
  }
  const spans = it.spans.filter((span) => span.count > 0).length;
  lanes.setAttribute("aria-label", number(it.lanes.length) + " lanes, " + number(spans) + " spans of the last " + time(window));
  setText(axis.firstElementChild, time(window) + " ago" + (it.left_out ? " · " + number(it.left_out) + " spans are not shown" : ""));
  setText(axis.lastElementChild, "now");
}

// ---- the whole ----

function render(shown) {
  last = shown;
  broken = 0;
  names = new Map(shown.members.map((it) => [it.key, it.name]));
  const node = shown.node || { node: "", links: [], channels: [], explain: "", refusals: [], links_left_out: 0, channels_left_out: 0 };
  for (const draw of [head, waits, sections, members, log]) guarded(() => draw(shown));
  for (const draw of [links, channels]) guarded(() => draw(node));
  for (const element of document.getElementsByClassName("of-node")) setText(element, nameOf(shown.selected));
  setText($("explain-text"), node.explain || "This member has not reported.");
}

function head(shown) {
  setText($("title"), shown.title || "chunkcomm");
  const here = shown.members.filter((it) => it.standing === "here").length;
  document.title = (shown.ended ? "ended · " : "") + (shown.title || "chunkcomm") + " · " + here + " members";
  const sum = (part) => shown.members.reduce((all, it) => all + (it.reports ? it[part] || 0 : 0), 0);
  const gone = shown.members.filter((it) => it.standing === "gone" || it.standing === "cut_off").length;
  facts($("totals"), [["members", count(here)], ["cut off or gone", gone ? state("Gone", number(gone)) : count(0)],
    ["messages", { Rate: sum("messages") }], ["bytes", text(bytes(sum("bytes")) + "/s")],
    ["for", micros(1000 * Math.max(0, shown.at_ms - shown.started_ms))]]);
}

// ---- the stream of states ----

function live(kind, words) {
  document.body.dataset.live = kind;
  setText($("live-text"), words);
}

function take(shown) {
  lastAt = Date.now();
  render(shown);
  if (shown.ended) live("ended", "ended at " + clock(shown.at_ms) + "; this is the last state");
  else live("live", broken ? "live; some of it cannot be shown" : "live");
}

function select(key) {
  selected = key;
  connect();
}

const SILENCE_MAX_MS = 20000, WAIT_MIN_MS = 500, WAIT_MAX_MS = 10000;
let stream = null, timer = 0, wait = WAIT_MIN_MS;

/** Reads states until the stream ends. Of those that came together the newest is shown. */
async function follow(mine) {
  let alarm = setTimeout(() => mine.abort(), SILENCE_MAX_MS);
  try {
    const path = "/events" + (selected ? "?node=" + encodeURIComponent(selected) : "");
    const headers = { Authorization: "Bearer " + token };
    const response = await fetch(path, { headers, signal: mine.signal, credentials: "omit", redirect: "error" });
    if (!response.ok) return { status: response.status, text: (await response.text()).trim() };
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const { value, done } = await reader.read();
      if (done || mine !== stream) return null;
      clearTimeout(alarm);
      alarm = setTimeout(() => mine.abort(), SILENCE_MAX_MS);
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      const newest = events.filter((it) => it.startsWith("data: ")).pop();
      if (!newest) continue;
      wait = WAIT_MIN_MS;
      take(JSON.parse(newest.slice(6)));
      if (last.ended) return null;
    }
  } finally {
    clearTimeout(alarm);
    mine.abort();
  }
}

function connect() {
  clearTimeout(timer);
  if (stream) stream.abort();
  stream = null;
  if (last && last.ended) return;
  const at = lastAt ? " This is the state of " + clock(lastAt) + "." : "";
  if (!token) return live("lost", "open the address that the program printed, with all that stands behind #");
  // A hidden page does not look.
  if (document.hidden) return live("waiting", "paused while it is hidden." + at);
  const mine = stream = new AbortController();
  follow(mine).catch((error) => { console.warn(error); return null; }).then((refused) => {
    if (mine !== stream) return;
    stream = null;
    if (last && last.ended) return;
    if (refused && refused.status === 401) {
      // Another run never takes this token.
      return live(lastAt ? "ended" : "lost", (lastAt ? "ended; this address has another run." : refused.text + ".") + at);
    }
    if (refused) {
      live("lost", refused.text + "; trying again." + at);
    } else {
      live(lastAt ? "ended" : "lost", (lastAt ? "ended, or out of reach; trying again." : "out of reach; trying again.") + at);
    }
    timer = setTimeout(connect, wait);
    wait = Math.min(2 * wait, WAIT_MAX_MS);
  });
}

document.addEventListener("visibilitychange", connect);
// Somebody has opened the address of another run in this tab.
addEventListener("hashchange", () => {
  if (!takeToken()) return;
  [last, lastAt, selected] = [null, 0, ""];
  connect();
});
$("filter").addEventListener("input", () => { if (last) guarded(() => members(last)); });
$("grid").addEventListener("keydown", (event) => {
  const tiles = [...$("grid").children].filter((tile) => !tile.hidden), at = tiles.indexOf(document.activeElement);
  if (at < 0) return;
  const across = Math.max(1, tiles.filter((tile) => tile.offsetTop === tiles[0].offsetTop).length);
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -at, End: tiles.length - 1 - at }[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const next = tiles[Math.min(tiles.length - 1, Math.max(0, at + step))];
  tiles.forEach((tile) => { tile.tabIndex = tile === next ? 0 : -1; });
  next.focus();
});
addEventListener("resize", () => { if (last) render(last); });
takeToken();
connect();
