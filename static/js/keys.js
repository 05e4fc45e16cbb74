/**
 * Single-key shortcuts: pages by `g` and a letter, rows by `j k x Enter w l c`, search by `/`, help
 * by `?`. What a letter opens stands in the page: `data-go` on a link of the rail, `data-shortcut`
 * on whatever else a letter presses. All can be switched off.
 */

const STORED = "terrace.keys";

/** @param {EventTarget | null} target */
export function isTyping(target) {
  return (
    target instanceof HTMLElement && target.matches("input, select, textarea, [contenteditable]")
  );
}

function isOff() {
  return localStorage.getItem(STORED) === "off";
}

function rows() {
  return [...document.querySelectorAll("[data-row]")];
}

function current() {
  return rows().find((row) => row.contains(document.activeElement));
}

/** @param {number} step */
function move(step) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))];
  next?.querySelector("a.row-link")?.focus();
}

/** @param {string} part of a job: `why` or `logs` */
function openPart(part) {
  const link = current()?.matches("[id^=job-row-]") && current().querySelector("a.row-link");
  if (link) location.assign(`${link.href}${part}/`);
  return Boolean(link);
}

/** Cancel what is chosen; the row where one stands if nothing is. The button asks first. */
function cancelRow() {
  const form = current()?.closest("form");
  const button = form?.querySelector("button[name=action][value=cancel]");
  if (!button) return false;
  if (!form.querySelector("tbody input:checked")) current().querySelector("input")?.click();
  button.click();
  return true;
}

/** @param {string} key */
function press(key) {
  const found = document.querySelector(`[data-shortcut="${CSS.escape(key)}"]`);
  found?.click();
  return Boolean(found);
}

/** @type {Record<string, () => unknown>} answers that say false when there was nothing to do */
const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  x: () => current()?.querySelector("input[type=checkbox]")?.click(),
  w: () => openPart("why") || press("w"),
  l: () => openPart("logs") || press("l"),
  c: () => cancelRow() || press("c"),
  "?": () => document.getElementById("shortcuts")?.showModal(),
  "/": () =>
    (document.querySelector("[data-find]") ?? document.getElementById("global-search"))?.focus(),
};

/** @param {Document} root */
function bindSwitch(root) {
  const toggle = root.querySelector("[data-keys-switch]");
  if (!toggle) return;
  toggle.checked = !isOff();
  toggle.addEventListener("change", () =>
    localStorage.setItem(STORED, toggle.checked ? "on" : "off"),
  );
}

/** @param {Document} root */
export function init(root) {
  let isAfterG = false;
  bindSwitch(root);
  root.addEventListener("keydown", (event) => {
    // What is typed inside a shadow root (the YAML editor) comes from there, not from its host.
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(target)) return;
    if (isOff() || root.querySelector("dialog[open]")) return;
    if (event.target.closest?.("[role=treegrid]") && event.key !== "g" && !isAfterG) return;
    const page = isAfterG && root.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    isAfterG = !isAfterG && event.key === "g";
    if (page) page.click();
    else if (isAfterG || !(event.key in KEYS) || KEYS[event.key]() === false) return;
    event.preventDefault();
  });
}
