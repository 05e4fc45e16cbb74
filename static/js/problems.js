/** Puts what a checking panel says of a field at the field too, and takes it away when it is right. */

/** @param {HTMLElement} input @returns {HTMLElement} */
function place(input) {
  const id = `${input.name}-error`;
  const found = document.getElementById(id);
  if (found) return found;
  const text = document.createElement("span");
  text.className = "field-error";
  text.id = id;
  input.after(text);
  return text;
}

/** @param {HTMLElement} input @param {string[]} texts */
function say(input, texts) {
  place(input).textContent = texts.join(" ");
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", `${input.name}-error`);
}

/** @param {HTMLElement} input */
function clear(input) {
  document.getElementById(`${input.name}-error`)?.remove();
  input.removeAttribute("aria-invalid");
  input.removeAttribute("aria-describedby");
}

/** @param {HTMLElement} panel names its form by `data-form`; its items name fields by `data-problem` */
export function init(panel) {
  const form = /** @type {HTMLFormElement} */ (document.getElementById(panel.dataset.form));
  panel.addEventListener("htmx:afterSwap", (event) => {
    // Only what was typed is judged: a panel that was loaded speaks of what is stored.
    if (event.target !== panel || event.detail.requestConfig.verb !== "post") return;
    /** @type {Map<string, string[]>} */
    const wrong = new Map();
    for (const item of panel.querySelectorAll("[data-problem]")) {
      const name = item.dataset.problem;
      const text = item.querySelector("[data-problem-text]") ?? item;
      wrong.set(name, [...(wrong.get(name) ?? []), text.textContent.trim()]);
    }
    for (const input of form.querySelectorAll("[name][aria-invalid]")) {
      if (!wrong.has(input.name)) clear(input);
    }
    for (const [name, texts] of wrong) {
      const input = form.elements.namedItem(name);
      if (input instanceof HTMLElement && input.type !== "hidden") say(input, texts);
    }
  });
}
