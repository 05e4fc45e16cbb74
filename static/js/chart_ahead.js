/** Loads the charts' library once the page has loaded and rests: live updates will bring charts. */

import { library } from "./chart.js";

export function init() {
  const load = () => library().catch((error) => console.info(error.message));
  const whenIdle = () => (window.requestIdleCallback ?? setTimeout)(load);
  if (document.readyState === "complete") whenIdle();
  else addEventListener("load", whenIdle, { once: true });
}
