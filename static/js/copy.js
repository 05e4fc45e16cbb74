/** Copies the text of the element that a button names in `data-copy`. */

/**
 * Copies, also where a page came over plain HTTP: the clipboard is closed to scripts there.
 * @param {HTMLElement} source
 */
async function copy(source) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(source.textContent.trim());
    return true;
  }
  getSelection().selectAllChildren(source);
  return document.execCommand("copy"); // where even this fails, what is to be copied is selected
}

/** @param {HTMLButtonElement} button */
export function init(button) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    if (!source || !(await copy(source))) return;
    button.textContent = button.dataset.done ?? label;
    setTimeout(() => {
      button.textContent = label;
    }, 1500);
  });
}
