/**
 * Keeps a page's live regions up to date: one socket, frames in order, a morph that keeps focus
 * and scroll. docs/live.md describes the attributes and the protocol.
 */

import { bytesOf, difference, keyOf, newBytes, pauseMs, Sequence } from "./live_protocol.js";
import { morph } from "./morph.js";

const PING_MS = 20000;
const SILENCE_MS = 45000;
const POLL_MS = 15000;
const HIDDEN_MS = 10000;
const SIGNED_OUT = 4401;
const LOG_CHARACTERS = 1000000;

/** @type {WebSocket | null} */
let socket = null;
let sequence = new Sequence();
let failures = 0;
let heardAt = 0;
let isSignedOut = false;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let retry;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let pausing;
/** @type {Map<string, string>} What the server was told that we follow. */
let followed = new Map();
/** @type {WeakMap<Element, TextDecoder>} */
const decoders = new WeakMap();

/** @param {HTMLElement} element */
function keyFor(element) {
  const { liveTopic = "", liveFragment, liveFeed = "", liveArg: argument = "" } = element.dataset;
  const kind = liveFragment ? "fragment" : "feed";
  return keyOf({ topic: liveTopic, kind, name: liveFragment ?? liveFeed, argument });
}

/** @returns {Map<string, HTMLElement[]>} the regions of the page as it is now */
function regions() {
  const found = new Map();
  for (const element of document.querySelectorAll("[data-live-topic]")) {
    const key = keyFor(/** @type {HTMLElement} */ (element));
    found.set(key, [...(found.get(key) ?? []), element]);
  }
  return found;
}

/** @param {HTMLElement} element */
function hasOf(element) {
  return (element.dataset.liveFeed ? element.dataset.liveCursor : element.dataset.liveHas) ?? "";
}

function present() {
  return new Map([...regions()].map(([key, elements]) => [key, hasOf(elements[0])]));
}

/** @param {"live" | "delayed" | "polling" | "offline" | "signed-out"} state */
function showState(state) {
  for (const badge of document.querySelectorAll("[data-live-badge]")) {
    if (!(badge instanceof HTMLElement) || badge.dataset.liveState === state) continue;
    badge.dataset.liveState = state;
    badge.textContent = badge.getAttribute(`data-text-${state}`) ?? state.replace("-", " ");
  }
}

/**
 * @param {HTMLElement} element
 * @param {string} html
 */
function show(element, html) {
  morph(element, html);
  /** @type {any} */ (globalThis).htmx?.process(element);
  element.dispatchEvent(new CustomEvent("terrace:morphed", { bubbles: true }));
}

/**
 * @param {HTMLElement} element
 * @param {number} from
 * @param {Uint8Array} bytes
 */
function appendLog(element, from, bytes) {
  const fresh = newBytes(Number(element.dataset.liveCursor ?? 0), from, bytes);
  const decoder = decoders.get(element) ?? new TextDecoder();
  decoders.set(element, decoder);
  const text = (fresh.isHole ? "\n⋯\n" : "") + decoder.decode(fresh.bytes, { stream: true });
  const detail = { text, offset: from };
  const event = new CustomEvent("terrace:log", { bubbles: true, cancelable: true, detail });
  if (!text || !element.dispatchEvent(event)) return;
  const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 8;
  element.append(text);
  while (element.childNodes.length > 1 && (element.textContent ?? "").length > LOG_CHARACTERS) {
    element.firstChild?.remove();
  }
  if (isAtEnd) element.scrollTop = element.scrollHeight;
}

/**
 * @param {HTMLElement} element
 * @param {import("./live_protocol.js").Update} update
 */
function applyTo(element, update) {
  if (update.gone) element.replaceChildren();
  if (update.html !== undefined) show(element, update.html);
  if (update.bytes) appendLog(element, update.from ?? 0, bytesOf(update.bytes));
  if (update.rows) {
    const detail = { rows: update.rows, cursor: update.has };
    element.dispatchEvent(new CustomEvent("terrace:data", { bubbles: true, detail }));
  }
  if (update.has !== undefined) {
    element.dataset[element.dataset.liveFeed ? "liveCursor" : "liveHas"] = update.has;
  }
}

/** @param {import("./live_protocol.js").Update[]} updates */
function apply(updates) {
  const elements = regions();
  for (const update of updates) {
    if (update.mode === "delayed" || update.mode === "live") showState(update.mode);
    for (const element of elements.get(update.key) ?? []) applyTo(element, update);
    if (followed.has(update.key)) followed.set(update.key, update.has ?? "");
  }
  follow();
}

/** @param {object} message */
function say(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

/** Tell the server what the page shows now, if that changed. */
export function follow() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const now = present();
  const { subscribe, unsubscribe } = difference(followed, now);
  if (unsubscribe.length) say({ do: "unsubscribe", regions: unsubscribe });
  for (let at = 0; at < subscribe.length; at += 50) {
    say({ do: "subscribe", regions: subscribe.slice(at, at + 50) });
  }
  followed = now;
}

/** @param {MessageEvent} event */
function hear(event) {
  heardAt = Date.now();
  const frame = JSON.parse(event.data);
  if (frame.pong) return;
  if (!sequence.take(frame.seq)) say({ do: "resync" });
  apply(frame.updates);
}

function connect() {
  clearTimeout(retry);
  if (socket || isSignedOut || document.hidden) return;
  const opened = new WebSocket(
    `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/live/`,
  );
  socket = opened;
  opened.addEventListener("open", () => {
    [sequence, followed, failures, heardAt] = [new Sequence(), new Map(), 0, Date.now()];
    showState("live");
    follow();
  });
  opened.addEventListener("message", hear);
  opened.addEventListener("close", (event) => {
    if (socket !== opened) return;
    socket = null;
    isSignedOut = event.code === SIGNED_OUT;
    showState(isSignedOut ? "signed-out" : failures ? "polling" : "offline");
    failures += 1;
    if (!isSignedOut && !document.hidden)
      retry = setTimeout(connect, pauseMs(failures, Math.random()));
  });
}

function disconnect() {
  const closed = socket;
  socket = null;
  closed?.close();
}

/** Ask by HTTP while no socket comes through. */
async function poll() {
  if (socket?.readyState === WebSocket.OPEN || isSignedOut || document.hidden || failures < 2)
    return;
  const query = new URLSearchParams();
  for (const [key, has] of present()) {
    query.append("region", key);
    query.append("has", has);
  }
  const reply = await fetch(`/live/poll?${query}`, { headers: { accept: "application/json" } });
  if (!reply.ok || reply.redirected) return showState("offline");
  showState("polling");
  apply((await reply.json()).updates);
}

function beat() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  if (Date.now() - heardAt > SILENCE_MS) socket.close();
  else say({ do: "ping" });
}

export function init() {
  if (!document.querySelector("[data-live-topic], [data-live-badge]")) return;
  setInterval(beat, PING_MS);
  setInterval(() => poll().catch(() => showState("offline")), POLL_MS + Math.random() * 2000);
  document.addEventListener("htmx:afterSettle", follow);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(pausing);
    if (document.hidden) pausing = setTimeout(disconnect, HIDDEN_MS);
    else connect();
  });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  connect();
}

init();
