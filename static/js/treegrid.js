/** A tree of rows by the ARIA tree-grid pattern: arrows walk, open and close; state in the DOM. */

const CLOSED = "terrace.tree.closed";

/** @returns {Set<string>} */
function stored() {
  return new Set(JSON.parse(localStorage.getItem(CLOSED) ?? "[]"));
}

/** @param {HTMLTableElement} table */
export function init(table) {
  const rows = () => [...table.querySelectorAll("tbody tr[data-path]")];
  const visible = () => rows().filter((row) => !row.hidden);
  const closed = stored();

  const draw = () => {
    const hiddenBelow = [];
    for (const row of rows()) {
      const level = Number(row.getAttribute("aria-level"));
      while (hiddenBelow.length && level <= hiddenBelow.at(-1)) hiddenBelow.pop();
      row.hidden = hiddenBelow.length > 0;
      if (!row.hasAttribute("aria-expanded") || "lazy" in row.dataset) continue;
      const isClosed = closed.has(row.dataset.path);
      row.setAttribute("aria-expanded", String(!isClosed));
      if (isClosed) hiddenBelow.push(level);
    }
  };
  const toggle = (row, isOpen) => {
    if (!row.hasAttribute("aria-expanded")) return;
    if ("lazy" in row.dataset) return row.querySelector(".tree-toggle").click();
    if (isOpen) closed.delete(row.dataset.path);
    else closed.add(row.dataset.path);
    localStorage.setItem(CLOSED, JSON.stringify([...closed]));
    draw();
  };
  const focus = (row) => {
    if (!row) return;
    for (const other of rows()) other.tabIndex = -1;
    row.tabIndex = 0;
    row.focus();
  };
  const parentOf = (row) => {
    const level = Number(row.getAttribute("aria-level"));
    return rows()
      .slice(0, rows().indexOf(row))
      .findLast((other) => Number(other.getAttribute("aria-level")) < level);
  };

  table.addEventListener("click", (event) => {
    const button = event.target.closest("button.tree-toggle");
    if (button) {
      const row = button.closest("tr");
      toggle(row, row.getAttribute("aria-expanded") === "false");
    }
  });
  table.addEventListener("keydown", (event) => {
    const row = event.target;
    if (!(row instanceof HTMLTableRowElement)) return;
    const shown = visible();
    const at = shown.indexOf(row);
    const isOpen = row.getAttribute("aria-expanded");
    if (event.key === "ArrowDown") focus(shown[at + 1]);
    else if (event.key === "ArrowUp") focus(shown[at - 1]);
    else if (event.key === "Home") focus(shown[0]);
    else if (event.key === "End") focus(shown.at(-1));
    else if (event.key === "ArrowRight" && isOpen === "false") toggle(row, true);
    else if (event.key === "ArrowRight" && isOpen === "true") focus(shown[at + 1]);
    else if (event.key === "ArrowLeft" && isOpen === "true") toggle(row, false);
    else if (event.key === "ArrowLeft") focus(parentOf(row));
    else if (event.key === "Enter") row.querySelector("a:not(.tree-toggle)")?.click();
    else return;
    event.preventDefault();
  });
  table.addEventListener("terrace:morphed", draw);
  draw();
}
