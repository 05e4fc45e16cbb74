/** Starts every module named by `data-module`; safe to call again after a morph. */

import * as bulk from "./bulk.js";
import * as chart from "./chart.js";
import * as chart_ahead from "./chart_ahead.js";
import * as confirm from "./confirm.js";
import * as copy from "./copy.js";
import * as editor from "./editor.js";
import * as keys from "./keys.js";
import * as log from "./log.js";
import * as menu from "./menu.js";
import * as merged from "./merged.js";
import { morph } from "./morph.js";
import * as newer from "./newer.js";
import * as palette from "./palette.js";
import * as policies from "./policies.js";
import * as problems from "./problems.js";
import * as roles from "./roles.js";
import * as stale from "./stale.js";
import * as theme from "./theme.js";
import * as times from "./times.js";
import * as treegrid from "./treegrid.js";

const MODULES = {
  bulk,
  chart,
  chart_ahead,
  confirm,
  copy,
  editor,
  log,
  menu,
  merged,
  newer,
  palette,
  policies,
  problems,
  roles,
  theme,
  treegrid,
};

/**
 * What has been started, by module. Not an attribute: a morph keeps the element and takes away
 * attributes that the server did not send, and every module would then be started once more.
 *
 * @type {Map<string, WeakSet<Element>>}
 */
const started = new Map(Object.keys(MODULES).map((name) => [name, new WeakSet()]));

/**
 * A table that is wider than its place can be scrolled by keys as well.
 *
 * @param {ParentNode} root
 */
function reachScrolled(root) {
  for (const wrap of root.querySelectorAll(".table-wrap")) {
    if (wrap.scrollWidth > wrap.clientWidth) wrap.tabIndex = 0;
    else wrap.removeAttribute("tabindex");
  }
}

/** On a phone a row of tabs is wider than the screen: the one that is open is scrolled into it. */
function showOpenTab() {
  for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
    const [bar, own] = [tab.parentElement, tab.getBoundingClientRect()];
    const middle = bar.getBoundingClientRect().left + (bar.clientWidth - own.width) / 2;
    bar.scrollLeft += own.left - middle;
  }
}

/** @param {ParentNode} root */
export function init(root) {
  for (const [name, module] of Object.entries(MODULES)) {
    const known = started.get(name);
    for (const element of root.querySelectorAll(`[data-module~="${name}"]`)) {
      if (known.has(element)) continue;
      known.add(element);
      module.init(element);
    }
  }
  times.refresh(root);
  reachScrolled(root);
}

document.documentElement.dataset.js = "true";
// htmx settles by idiomorph, which keeps focus, scroll and open menus.
window.htmx?.defineExtension("morph", {
  isInlineSwap: (style) => style === "morph",
  handleSwap(style, target, fragment) {
    if (style !== "morph") return false;
    return morph(target, fragment.children);
  },
});
document.body.setAttribute("hx-ext", "morph");
window.htmx?.process(document.body);
keys.init(document);
times.init(document);
stale.init();
init(document);
showOpenTab();
// A form that came back with problems is gone on with at the first of them.
document.querySelector("[aria-invalid='true']")?.focus();
addEventListener("resize", () => reachScrolled(document));
document.addEventListener("htmx:afterSettle", (event) => init(event.target));
document.addEventListener("terrace:morphed", (event) => init(event.target));
