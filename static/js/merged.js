/** The output of several tasks in one place: lines come from hidden feeds, each behind its name. */

const MOST_LINES = 5000;

/** @param {HTMLElement} box */
export function init(box) {
  const out = box.querySelector("[data-merged-out]");
  /** @type {WeakMap<Element, string>} the beginning of a line whose end has not come yet */
  const rests = new WeakMap();
  out.scrollTop = out.scrollHeight;
  box.addEventListener("terrace:log", (event) => {
    const name = event.target.dataset.mergedName;
    if (!name) return;
    event.preventDefault();
    const lines = ((rests.get(event.target) ?? "") + event.detail.text).split("\n");
    rests.set(event.target, lines.pop());
    if (!lines.length) return;
    const isAtEnd = out.scrollHeight - out.scrollTop - out.clientHeight < 8;
    out.append(...lines.map((line) => `${name} │ ${line}\n`));
    while (out.childNodes.length > MOST_LINES) out.firstChild.remove();
    if (isAtEnd) out.scrollTop = out.scrollHeight;
  });
}
