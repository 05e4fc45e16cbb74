/** Asks before a button with `data-confirm` sends its form. */

/** @param {HTMLElement} scope */
export function init(scope) {
  scope.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-confirm]");
    if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
  });
}
