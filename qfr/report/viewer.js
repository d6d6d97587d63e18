
// Transcripts side by side. Everything that a model wrote reaches the page as textContent, never as markup.
const viewer = document.getElementById("viewer");
const logs = viewer ? JSON.parse(document.getElementById("log-index").textContent) : [];
const unpacked = new Map();
let shown = 0;

function unpack(at) {
  if (!unpacked.has(at)) {
    const bytes = Uint8Array.from(atob(document.getElementById("log-" + at).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    unpacked.set(at, new Response(stream).text().then(JSON.parse));
  }
  return unpacked.get(at);
}

function fill(select, values, wanted) {
  select.replaceChildren(
    ...values.map(([value, text]) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = text;
      return option;
    }),
  );
  if (values.some(([value]) => value === wanted)) select.value = wanted;
}

function distinct(values) {
  return [...new Set(values)];
}

// All episodes of one task by one agent: {"et/0": {episode, turns}}.
async function episodes(agent, task) {
  const found = new Map();
  for (const [at, log] of logs.entries()) {
    if (log.agent !== agent || !log.tasks.includes(task)) continue;
    const cell = await unpack(at);
    for (const episode of cell.episodes) {
      if (episode.task !== task) continue;
      const key = siteKey(episode);
      if (!found.has(key)) found.set(key, { episode, turns: episode.turns.map((turn) => cell.turns[turn]) });
    }
  }
  return found;
}

function siteKey(episode) {
  if (episode.repeat !== undefined) return "trial " + (episode.repeat + 1);
  return episode.site === null ? "none" : episode.fault + "/" + episode.site;
}

function siteName(key, episode) {
  if (key.startsWith("trial ")) return key;
  return key === "none" ? "clean pass" : episode.fault + ", site " + episode.site + " (" + episode.tool + ")";
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function same(one, other, tokens) {
  if (!one || !other) return one === other;
  const written = tokens ? String(one.tokens) === String(other.tokens) : one.text === other.text;
  return written && one.text === other.text && one.call === other.call && one.answer === other.answer;
}

// Index of the first difference of two texts or lists.
function parting(one, other) {
  let at = 0;
  while (at < one.length && at < other.length && one[at] === other[at]) at += 1;
  return at;
}

function written(text, from) {
  const block = element("pre");
  const inner = element("bdi");
  if (from === null || from >= text.length) inner.textContent = text;
  else {
    // Not inside a surrogate pair.
    const code = text.charCodeAt(from);
    const start = code >= 0xdc00 && code <= 0xdfff ? from - 1 : from;
    inner.append(text.slice(0, start), element("mark", "", text.slice(start)));
  }
  block.append(inner);
  return block;
}

function side(label, turn, from, witnessed) {
  const box = element("div", "turn" + (turn && turn.injected ? " fault" : ""));
  const head = element("p", "who");
  head.append(element("bdi", "", label));
  if (!turn) {
    head.append(" · the episode had ended");
    box.append(head);
    return box;
  }
  if (turn.parse !== "strict") head.append(" · " + (turn.parse === "none" ? "unreadable" : "not strict JSON"));
  if (turn.stop !== "end_of_generation") head.append(" · cut off (" + turn.stop.replace("_", " ") + ")");
  box.append(head);
  if (turn.text || !turn.call) box.append(written(turn.text, from));
  if (turn.call) box.append(element("p", "kind", "call"), written(turn.call, null));
  if (turn.answer) {
    const kind = turn.injected ? "⚡ injected fault" : turn.channel ? "✗ " + turn.channel.replace("_", " ") + " error" : "tool answer";
    box.append(element("p", "kind", kind), written(turn.answer, null));
  }
  return box;
}

function margins(left, right) {
  const at = parting(left.tokens, right.tokens);
  const told = [left, right].map((turn) => (turn.margins[at] === undefined || turn.margins[at] === null ? "unknown" : turn.margins[at].toFixed(2)));
  return " at token " + (at + 1) + " (margins " + told.join(" and ") + " logits)";
}

function ended(one) {
  if (!one) return "not run";
  const { ending, good, reason, answer, gold } = one.episode;
  const told = ending.replace(/_/g, " ") + (answer === null ? "" : ", answer " + answer + " (right: " + gold + ")");
  // An imported log has one success, its own.
  if (good.length === 1) return told + "; " + (good[0] ? "success" : "failure");
  return told + "; tolerant " + (good[0] ? "success" : "failure: " + reason[0].replace(/_/g, " ")) + ", strict " + (good[1] ? "success" : "failure");
}

function modelOf(agent) {
  return logs.find((log) => log.agent === agent).model;
}

function render(left, right) {
  const names = [viewer.left.value, viewer.right.value];
  const tokens = modelOf(names[0]) === modelOf(names[1]);
  const count = Math.max(left ? left.turns.length : 0, right ? right.turns.length : 0);
  let first = null;
  const rows = [];
  for (let at = 0; at < count; at += 1) {
    const pair = [left && left.turns[at], right && right.turns[at]];
    const differs = left && right && !same(pair[0], pair[1], tokens);
    const parts = differs && first === null;
    if (parts) first = at;
    const row = element("section", "row" + (parts ? " parting" : ""));
    row.append(element("h4", "", "Turn " + (at + 1) + (parts ? " · ≠ first difference" : "")));
    const from = parts && pair[0] && pair[1] ? parting(pair[0].text, pair[1].text) : null;
    const both = element("div", "both");
    both.append(side(names[0], pair[0], from), side(names[1], pair[1], from));
    row.append(both);
    rows.push(row);
  }
  document.getElementById("viewer-turns").replaceChildren(...rows);
  let told = "";
  if (!left || !right) told = "One of the two was not run here, since its clean pass failed.";
  else if (first === null) told = "The two transcripts are equal.";
  else {
    told = "They part in turn " + (first + 1);
    const pair = [left.turns[first], right.turns[first]];
    if (tokens && pair[0] && pair[1] && pair[0].text !== pair[1].text) told += margins(pair[0], pair[1]);
    told += ".";
  }
  const summary = document.getElementById("viewer-summary");
  summary.replaceChildren(element("strong", "", told));
  for (const [name, one] of [[names[0], left], [names[1], right]]) {
    const line = element("span", "ended");
    line.append(element("bdi", "", name), ": ", element("bdi", "", ended(one)));
    summary.append(line);
  }
  return first;
}

async function show(wanted) {
  const ticket = (shown += 1);
  const task = viewer.task.value;
  const [left, right] = await Promise.all([episodes(viewer.left.value, task), episodes(viewer.right.value, task)]);
  if (ticket !== shown) return null;
  const keys = distinct([...left.keys(), ...right.keys()]).sort((a, b) => (a === "none" ? -1 : b === "none" ? 1 : a.localeCompare(b)));
  const site = wanted || viewer.site.value;
  fill(viewer.site, keys.map((key) => [key, siteName(key, (left.get(key) || right.get(key)).episode)]), site);
  return render(left.get(viewer.site.value), right.get(viewer.site.value));
}

// The next task and site, in either direction, where the two cells differ.
async function search(step) {
  const tasks = [...viewer.task.options].map((option) => option.value);
  const start = tasks.indexOf(viewer.task.value);
  for (let moved = 0; moved <= tasks.length; moved += 1) {
    const task = tasks[(start + step * moved + tasks.length * 2) % tasks.length];
    const [left, right] = await Promise.all([episodes(viewer.left.value, task), episodes(viewer.right.value, task)]);
    let keys = [...left.keys()].filter((key) => right.has(key)).sort((a, b) => (a === "none" ? -1 : b === "none" ? 1 : a.localeCompare(b)));
    if (moved === 0) {
      const now = keys.indexOf(viewer.site.value);
      keys = step > 0 ? keys.slice(now + 1) : keys.slice(0, Math.max(now, 0));
    }
    if (step < 0) keys.reverse();
    for (const key of keys) {
      const [one, other] = [left.get(key), right.get(key)];
      const tokens = modelOf(viewer.left.value) === modelOf(viewer.right.value);
      const count = Math.max(one.turns.length, other.turns.length);
      if ([...Array(count).keys()].some((at) => !same(one.turns[at], other.turns[at], tokens))) {
        viewer.task.value = task;
        await show(key);
        return;
      }
    }
  }
  document.getElementById("viewer-summary").textContent = "These two cells differ in no further episode.";
}

function openTranscript(point) {
  if (!viewer || !Array.isArray(point.customdata)) return;
  const [task, fault, site, agent] = point.customdata;
  if (!logs.some((log) => log.agent === agent && log.tasks.includes(task))) return;
  viewer.task.value = task;
  viewer.left.value = agent;
  const rival = logs.find((log) => log.agent !== agent && log.model === modelOf(agent) && log.agent.endsWith(agent.split(" ").pop()));
  if (viewer.right.value === agent && rival) viewer.right.value = rival.agent;
  show(fault + "/" + site);
  document.getElementById("transcripts").scrollIntoView();
}

if (viewer && logs.length) {
  const agents = distinct(logs.map((log) => log.agent));
  const options = agents.map((agent) => [agent, agent]);
  fill(viewer.task, distinct(logs.flatMap((log) => log.tasks)).map((task) => [task, task]));
  fill(viewer.left, options);
  fill(viewer.right, options, agents[1] || agents[0]);
  viewer.addEventListener("change", () => show());
  viewer.addEventListener("submit", (event) => event.preventDefault());
  viewer.next.addEventListener("click", () => search(1));
  viewer.previous.addEventListener("click", () => search(-1));
  show().then((first) => first === null && search(1));
}
