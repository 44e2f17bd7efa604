// The page: sensors, session, trace and recording meet the person.

import { impossible, listen, permitted } from "./motion.js";
import { Sessions } from "./sessions.js";
import { Stream } from "./stream.js";
import { Trace } from "./trace.js";

const OWN = "own"; // the choice of a name of one's own; a model's label comes with its number
const NO_READINGS_SECONDS = 3;
const USUAL_STEPS = 128;

const part = name => document.getElementById(name);
const token = new URLSearchParams(location.hash.slice(1)).get("token"); // a fragment is never sent to a server
const trace = new Trace(part("trace"));
const sessions = new Sessions(USUAL_STEPS);
let labels = [];

function say(words, kind = "") {
  const message = part("message");
  message.textContent = words;
  message.className = kind;
}

/** The name of a class as words, as the report has them: WALKING_UPSTAIRS is Walking upstairs. */
function spoken(label) {
  const words = label.replaceAll("_", " ").trim();
  const shouts = words === words.toUpperCase() && words !== words.toLowerCase();
  return shouts ? words[0] + words.slice(1).toLowerCase() : words;
}

function nothingKnown() { // a label of before would look like one of now
  part("label").textContent = "…";
  part("confidence").textContent = part("latency").textContent = "–";
}

const percent = share => `${Math.round(100 * share)} %`;

function shown(event) {
  if (event.event === "label") {
    const words = event.label ? spoken(event.label) : "…";
    if (part("label").textContent !== words) part("label").textContent = words; // a screen reader says each change once
    part("confidence").textContent = percent(event.confidence);
    part("latency").textContent = `${Math.round(event.latency_ms)} ms`;
    part("fault").textContent = "";
  } else if (event.event === "fault") {
    if (event.kind !== "doubled" && event.kind !== "late") nothingKnown();
    part("fault").textContent = `${event.kind.replace("_", " ")}: ${event.detail}`;
  } else if (event.event === "version") {
    part("model").textContent = `version ${event.version}`;
  }
}

function offer(given) {
  const choice = part("choice"), before = choice.value;
  labels = given;
  choice.replaceChildren(...given.map((label, at) => new Option(spoken(label), String(at))), new Option("something else", OWN));
  if ([...choice.options].some(option => option.value === before)) choice.value = before;
  ownLine();
}

function ownLine() { part("own-line").hidden = part("choice").value !== OWN; }

const stream = new Stream(token, {
  ready(event) {
    say("Connected. Put the phone where you carry it.", "well");
    part("model").textContent = `${event.model} version ${event.version}`;
    if (!sessions.current && !sessions.kept.length) sessions.steps = event.window_steps;
    offer(event.labels);
    part("filters").hidden = event.filters !== "two-way";
    part("live").hidden = part("recording").hidden = false;
  },
  event: shown,
  lost(seconds, words, isRestart) {
    nothingKnown();
    const lost = isRestart ? "The service restarts; your session continues after that." : "The connection is lost.";
    say(`${words ? `The service says: ${words}.` : lost} Trying again in ${seconds} s.`, "bad");
  },
  refused(words) {
    nothingKnown();
    const remedy = words.includes("token") ? " Open the address that fab serve printed, with all that stands behind #." : "";
    say(`The service refused: ${words}.${remedy}`, "bad");
  },
});

function taken(reading) {
  stream.push(reading);
  trace.push(reading);
  if (!sessions.push(reading)) stop();
}

async function start() {
  const reason = impossible();
  if (reason) return say(reason, "bad");
  if (!(await permitted())) {
    return say("Motion was refused. Close this page, open it again, press Start and allow motion.", "bad");
  }
  part("start").hidden = true;
  say("Connecting…");
  const sensors = part("sensors"); // beside the message: that one is of the connection
  let isHeard = false;
  listen(reading => {
    if (!isHeard) sensors.textContent = "";
    isHeard = true;
    taken(reading);
  }, () => { sensors.textContent = "This device has no accelerometer and gyroscope that the browser may read."; });
  setTimeout(() => {
    if (!isHeard) sensors.textContent = "No motion arrives. Does this device have sensors, and may the browser read them?";
  }, NO_READINGS_SECONDS * 1000);
  stream.open();
  navigator.wakeLock?.request("screen").catch(() => {}); // a dark screen ends the readings
}

function chosen() {
  const choice = part("choice").value;
  return choice === OWN ? part("own").value.trim() : labels[Number(choice)];
}

function record() {
  if (sessions.current) return stop();
  const label = chosen();
  if (!label) {
    part("recorded").textContent = "Type a name first.";
    return part("own").focus();
  }
  sessions.begin(label);
  part("record").textContent = "Stop";
  part("record").setAttribute("aria-pressed", "true");
  part("recorded").textContent = `Recording ${spoken(label)}.`;
}

function stop() {
  const ended = sessions.end();
  part("record").textContent = "Record";
  part("record").setAttribute("aria-pressed", "false");
  part("recorded").textContent = typeof ended === "string"
    ? ended : `Recorded ${Math.round(ended.seconds)} s of ${spoken(ended.label)}: ${ended.windows.length} windows.`;
  list();
}

function list() {
  part("sessions").replaceChildren(...sessions.kept.map(session => {
    const item = document.createElement("li"), remove = document.createElement("button");
    const words = `${spoken(session.label)}, ${Math.round(session.seconds)} s`;
    remove.type = "button";
    remove.textContent = "Delete";
    remove.setAttribute("aria-label", `Delete ${words}`);
    remove.onclick = () => { sessions.remove(session); list(); part("record").focus(); };
    item.append(words, remove);
    return item;
  }));
  part("download").disabled = !sessions.kept.length;
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(sessions.file(labels));
  link.download = "walk.npz";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

part("start").onclick = start;
part("choice").onchange = ownLine;
part("record").onclick = record;
part("download").onclick = download;
