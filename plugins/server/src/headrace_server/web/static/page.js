"use strict";
// Keeps the pages live and carries out what buttons say. Texts of the server go into the page as text only.
const csrf = document.querySelector("meta[name=csrf-token]").content;
const said = document.getElementById("said");
let saying = 0;
function say(text) { said.textContent = text; clearTimeout(saying); saying = setTimeout(() => { said.textContent = ""; }, 12000); }

async function send(method, path, body) {
  const answer = await fetch(path, { method, headers: { "X-CSRF-Token": csrf, "Content-Type": "application/json" }, body });
  const text = await answer.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { throw new Error(`The server answered ${answer.status}.`); }
  if (answer.status === 401) { location.assign("/login"); }
  if (!answer.ok) { throw new Error([found && (found.detail || found.title), found && found.hint].filter(Boolean).join("\n")); }
  return found;
}

async function finished(operation, told) {
  while (operation.state === "running") {
    say(`${operation.kind}: ${operation.step}`);
    await new Promise((resolve) => setTimeout(resolve, 400));
    operation = await send("GET", `/v1/operations/${operation.id}`);
  }
  if (operation.state === "failed") { throw new Error(operation.error); }
  say(told ? told(JSON.parse(operation.result)) : `${operation.kind}: done`);
}

async function busy(button, work) {
  button.disabled = true;
  try { await work(); } catch (error) { say(error.message); } finally { button.disabled = false; button.focus(); }
}

for (const button of document.querySelectorAll("[data-request]")) {
  button.addEventListener("click", () => {
    if (button.dataset.ask && !confirm(button.dataset.ask)) { return; }
    const [method, path] = button.dataset.request.split(" ");
    busy(button, async () => {
      const found = await send(method, path, button.dataset.body);
      if (found && found.state) { await finished(found, (result) => result && result.savepoint ? `savepoint: ${result.savepoint}` : `${found.kind}: done`); }
      if (button.dataset.then) { location.assign(button.dataset.then); }
      if (path.endsWith("/rollback") || path.endsWith("/upgrade")) { location.reload(); }
    });
  });
}

// ---------------------------------------------------------------------------------------------------- live figures
const number = (value) => value === null || value === undefined ? "–" : value >= 10 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1);
function shown(name, value) {
  if (name === "checkpoint_age_seconds") { return value === null ? "–" : `${value} s`; }
  if (name === "state" || name === "problem" || name === "server") { return value || ""; }
  return number(value);
}
function fill(place, job) {
  for (const field of place.querySelectorAll("[data-field]")) {
    const name = field.dataset.field;
    const text = shown(name, job[name]);
    if (field.textContent !== text) { field.textContent = text; }
    if (name === "state") { field.className = `state ${/^\w+$/.test(job.state) ? job.state : ""}`; }
    if (name === "problem" && field.matches("p")) { field.hidden = !job.problem; }
  }
}
const live = document.querySelector("[data-live]");
if (live) {
  const stream = new EventSource(live.dataset.live);
  stream.addEventListener("jobs", (event) => {
    const jobs = JSON.parse(event.data);
    const rows = new Map([...document.querySelectorAll("tr[data-job]")].map((row) => [row.dataset.job, row]));
    if (live.matches("table") && (jobs.length !== rows.size || jobs.some((job) => !rows.has(job.name)))) { location.reload(); return; }
    for (const job of jobs) {
      if (rows.has(job.name)) { fill(rows.get(job.name), job); }
      if (live.dataset.job === job.name) { fill(document.getElementById("main"), job); }
    }
  });
  addEventListener("pagehide", () => stream.close());
}
const picture = document.getElementById("picture");
if (picture) {
  let waiting = false;
  for (const kind of ["load", "error"]) { picture.addEventListener(kind, () => { waiting = false; }); }
  setInterval(() => { if (!document.hidden && !waiting) { waiting = true; picture.src = `${picture.dataset.picture}?at=${Date.now()}`; } }, 2500);
}

// ------------------------------------------------------------------------------------------------------------ logs
const log = document.getElementById("log");
if (log) {
  const follow = document.getElementById("follow");
  let stream = null;
  const begin = () => {
    log.textContent = "";
    const lines = [];
    stream = new EventSource(log.dataset.log);
    stream.addEventListener("open", () => { lines.length = 0; });
    stream.addEventListener("line", (event) => {
      lines.push(JSON.parse(event.data));
      if (lines.length > 2000) { lines.shift(); }
      log.textContent = lines.join("\n");
      log.scrollTop = log.scrollHeight;
    });
  };
  follow.addEventListener("change", () => { if (follow.checked) { begin(); } else { stream.close(); } });
  addEventListener("pagehide", () => stream && stream.close());
  begin();
}

// ---------------------------------------------------------------------------------------------------- dead letters
const letters = document.getElementById("letters");
if (letters) {
  const boxes = () => [...letters.querySelectorAll("[name=letter]:not(:disabled)")];
  document.getElementById("all").addEventListener("change", (event) => { for (const box of boxes()) { box.checked = event.target.checked; } });
  letters.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = boxes().filter((box) => box.checked).map((box) => box.value);
    if (!chosen.length) { say("Choose letters first."); return; }
    busy(letters.querySelector("[type=submit]"), async () => {
      const body = JSON.stringify({ letters: chosen, again: letters.elements.again.checked });
      const operation = await send("POST", letters.dataset.replay, body);
      await finished(operation, (result) => {
        const rows = Object.entries(result.rows_written).map(([sink, count]) => `${count} rows to ${sink}`).join(", ");
        return `replay: ${result.records_read} bodies sent, ${rows}, ${result.dead_letters} bad again`;
      });
    });
  });
}

// ----------------------------------------------------------------------------------------------------------- rules
const explain = document.getElementById("explain");
if (explain) {
  explain.addEventListener("submit", (event) => {
    event.preventDefault();
    const place = document.getElementById("explanation");
    busy(explain.querySelector("button"), async () => {
      const body = JSON.stringify({ rule: explain.elements.rule.value, message: explain.elements.message.value });
      place.textContent = (await send("POST", explain.dataset.explain, body)).text;
      place.hidden = false;
    });
  });
}

// ------------------------------------------------------------------------------------------------------------- SQL
const sql = document.getElementById("sql");
if (sql) {
  const lint = document.getElementById("lint");
  const plan = document.getElementById("plan");
  let asked = 0, timer = 0, blob = null;
  const check = async () => {
    const mine = ++asked;
    if (!sql.elements.text.value.trim()) { lint.className = "lint"; lint.textContent = ""; plan.hidden = true; return; }
    lint.textContent = "checking …";
    let kind = "right", text;
    try {
      const found = await send("POST", "/v1/sql/lint", JSON.stringify({ text: sql.elements.text.value }));
      if (mine !== asked) { return; }
      text = ["The text can run.", ...found.notices].join("\n");
      plan.hidden = !found.picture;
      if (found.picture) {
        if (blob) { URL.revokeObjectURL(blob); }
        blob = URL.createObjectURL(new Blob([found.picture], { type: "image/svg+xml" }));
        plan.src = blob;
      }
    } catch (error) { kind = "wrong"; text = error.message; }
    if (mine === asked) { lint.className = `lint ${kind}`; lint.textContent = text; }
  };
  sql.elements.text.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 500); });
  const table = (name, found) => {
    const made = document.createElement("table");
    const caption = made.createCaption();
    caption.textContent = `${name}: ${found.count.toLocaleString("en")} rows`;
    const head = made.createTHead().insertRow();
    for (const column of found.columns) { const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = column; head.append(cell); }
    const body = made.createTBody();
    for (const values of found.rows) { const row = body.insertRow(); for (const value of values) { row.insertCell().textContent = value === null ? "NULL" : value; } }
    return made;
  };
  sql.addEventListener("submit", (event) => {
    event.preventDefault();
    const place = document.getElementById("sample");
    busy(sql.querySelector("button"), async () => {
      place.replaceChildren();
      say("The text runs over the last records …");
      const body = JSON.stringify({ text: sql.elements.text.value, records: Number(sql.elements.records.value) });
      const found = await send("POST", "/v1/sql/sample", body);
      for (const [name, rows] of Object.entries(found.tables)) { place.append(table(name, rows)); }
      if (found.dead_letters.length) {
        const bad = found.dead_letters.map((each) => [each.origin, each.reason, each.preview]);
        place.append(table("bad records", { count: bad.length, columns: ["node", "reason", "record"], rows: bad }));
      }
      say(`${found.records.toLocaleString("en")} records were read.`);
    });
  });
}
