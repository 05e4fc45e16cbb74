/** Starts every module named by `data-module`; safe to call again after a morph. */

import * as bulk from "./bulk.js";
import * as chart from "./chart.js";
import * as confirm from "./confirm.js";
import * as copy from "./copy.js";
import * as keys from "./keys.js";
import * as log from "./log.js";
import * as menu from "./menu.js";
import * as palette from "./palette.js";
import * as roles from "./roles.js";
import * as theme from "./theme.js";
import * as times from "./times.js";
import * as treegrid from "./treegrid.js";

const MODULES = { bulk, chart, confirm, copy, log, menu, palette, roles, theme, treegrid };

/** @param {ParentNode} root */
export function init(root) {
  for (const [name, module] of Object.entries(MODULES)) {
    for (const element of root.querySelectorAll(`[data-module~="${name}"]`)) {
      const started = `started${name[0].toUpperCase()}${name.slice(1)}`;
      if (element.dataset[started]) continue;
      element.dataset[started] = "true";
      module.init(element);
    }
  }
  times.refresh(root);
}

document.documentElement.dataset.js = "true";
// htmx settles by idiomorph, which keeps focus, scroll and open menus.
window.htmx?.defineExtension("morph", {
  isInlineSwap: (style) => style === "morph",
  handleSwap(style, target, fragment) {
    if (style !== "morph") return false;
    return window.Idiomorph.morph(target, fragment.children, { morphStyle: "innerHTML" });
  },
});
document.body.setAttribute("hx-ext", "morph");
window.htmx?.process(document.body);
keys.init(document);
times.init(document);
init(document);
document.addEventListener("htmx:afterSettle", (event) => init(event.target));
document.addEventListener("terrace:morphed", (event) => init(event.target));
