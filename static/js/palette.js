/** The palette (Ctrl-K): arrow keys walk over what was found, Enter opens it. */

/** @param {HTMLDialogElement} dialog */
export function init(dialog) {
  const input = dialog.querySelector("input");
  const links = () => [...dialog.querySelectorAll(".palette-results a")];
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    input.dispatchEvent(new CustomEvent("palette:open"));
  });
  dialog.addEventListener("keydown", (event) => {
    const found = links();
    const at = found.indexOf(document.activeElement);
    if (event.key === "ArrowDown") found[Math.min(at + 1, found.length - 1)]?.focus();
    else if (event.key === "ArrowUp") (found[at - 1] ?? input).focus();
    else if (event.key === "Escape")
      dialog.close(); // a search field would only empty itself
    else if (event.key === "Enter" && at < 0) found[0]?.click();
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
