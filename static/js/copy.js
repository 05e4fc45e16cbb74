/** Copies the text of the element that a button names in `data-copy`. */

/** @param {HTMLButtonElement} button */
export function init(button) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy)?.textContent ?? "";
    await navigator.clipboard.writeText(text.trim());
    button.textContent = button.dataset.done ?? label;
    setTimeout(() => {
      button.textContent = label;
    }, 1500);
  });
}
