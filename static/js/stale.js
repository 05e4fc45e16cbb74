/**
 * Says since when something on the page is no longer true: a part that could not be asked for
 * again keeps what it showed, dimmed and with a note; so does the page while it is offline.
 */

const STALE_STATES = ["offline", "signed-out"];
const UNAUTHORIZED = 401;

/** The time of day in the zone in which the server writes times. */
function clock() {
  const zone = document.body.dataset.zone;
  return new Date().toLocaleTimeString("en-GB", { hourCycle: "h23", timeZone: zone });
}

/** @param {string} detail @param {() => void} retry */
function note(detail, retry) {
  const template = document.getElementById("stale-note");
  const made = template.content.firstElementChild.cloneNode(true);
  made.querySelector("[data-stale-time]").textContent = clock();
  made.querySelector("[data-stale-detail]").textContent = detail;
  made.querySelector("button").addEventListener("click", retry);
  return made;
}

/** @param {Element} part */
function clear(part) {
  part.classList.remove("is-stale");
  if (part.previousElementSibling?.matches(".stale-note")) part.previousElementSibling.remove();
}

/** @param {CustomEvent} event */
function failed(event) {
  const part = event.detail.target ?? event.target;
  if (part.classList.contains("is-stale")) return;
  const reply = event.detail.xhr;
  if (reply?.status === UNAUTHORIZED) {
    const badge = document.querySelector("[data-live-badge]");
    part.before(note(badge?.dataset.textSignedOut ?? "", () => location.reload()));
    part.classList.add("is-stale");
    return;
  }
  const id = reply?.getResponseHeader?.("X-Request-Id");
  const words = [reply?.status ? String(reply.status) : "", id ?? ""].filter(Boolean).join(" · ");
  const asking = event.detail.elt ?? part;
  const before = note(words, () => window.htmx.trigger(asking, "load"));
  part.before(before);
  part.classList.add("is-stale");
}

/** @param {Element} badge */
function watch(badge) {
  const main = document.getElementById("main");
  new MutationObserver(() => {
    const isStale = STALE_STATES.includes(badge.dataset.liveState);
    const shown = main.querySelector(":scope > .stale-note");
    if (isStale && !shown) main.prepend(note(badge.textContent, () => location.reload()));
    else if (!isStale) shown?.remove();
  }).observe(badge, { attributes: true, attributeFilter: ["data-live-state"] });
}

export function init() {
  if (!document.getElementById("stale-note")) return;
  document.addEventListener("htmx:responseError", failed);
  document.addEventListener("htmx:sendError", failed);
  document.addEventListener("htmx:afterSwap", (event) =>
    clear(event.detail.target ?? event.target),
  );
  const badge = document.querySelector("[data-live-badge]");
  if (badge) watch(badge);
}
