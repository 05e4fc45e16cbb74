/** Single-key shortcuts: pages by `g`, rows by `j k x Enter`, search by `/`, help by `?`. */

const STORED = "terrace.keys";
const PAGES = {
  h: "pages:home",
  j: "pages:job_list",
  n: "pages:job_new",
  q: "pages:queue_tree",
  c: "pages:cluster",
};
const RAIL = Object.values(PAGES);

/** @param {EventTarget | null} target */
export function isTyping(target) {
  return (
    target instanceof HTMLElement && target.matches("input, select, textarea, [contenteditable]")
  );
}

function rows() {
  return [...document.querySelectorAll("[data-row]")];
}

/** @param {number} step */
function move(step) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))];
  next?.querySelector("a.row-link")?.focus();
}

/** @param {string} key */
function go(key) {
  const links = [...document.querySelectorAll(".rail a.rail-link")];
  links[RAIL.indexOf(PAGES[key])]?.click();
}

/** @param {Document} root */
export function init(root) {
  let isAfterG = false;
  const toggle = root.querySelector("[data-keys-switch]");
  if (toggle) {
    toggle.checked = localStorage.getItem(STORED) !== "off";
    toggle.addEventListener("change", () =>
      localStorage.setItem(STORED, toggle.checked ? "on" : "off"),
    );
  }
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (localStorage.getItem(STORED) === "off" || root.querySelector("dialog[open]")) return;
    if (event.target.closest?.("[role=treegrid]") && event.key !== "g") return;
    if (isAfterG && event.key in PAGES) {
      isAfterG = false;
      go(event.key);
      return;
    }
    isAfterG = event.key === "g";
    const current = rows().find((row) => row.contains(root.activeElement));
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "x") current?.querySelector("input[type=checkbox]")?.click();
    else if (event.key === "?") root.getElementById("shortcuts")?.showModal();
    else if (event.key === "/") root.getElementById("global-search")?.focus();
    else return;
    event.preventDefault();
  });
}
