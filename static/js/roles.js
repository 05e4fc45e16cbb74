/** The roles of the job form: adds a copy of the empty one, removes one, renumbers the fields. */

/** @param {Element} part @param {number} index */
function number(part, index) {
  for (const element of part.querySelectorAll("[name], [id], [for], [aria-describedby]")) {
    for (const attribute of ["name", "id", "for", "aria-describedby"]) {
      const value = element.getAttribute(attribute);
      if (value)
        element.setAttribute(
          attribute,
          value.replace(/roles-(?:\d+|__index__)-/g, `roles-${index}-`),
        );
    }
  }
  const title = part.querySelector("[data-role-number]");
  if (title) title.textContent = String(index + 1);
}

/** @param {HTMLElement} box */
export function init(box) {
  const list = box.querySelector("[data-role-list]");
  const template = box.querySelector("template");
  const renumber = () => {
    const parts = [...list.children];
    for (const [index, part] of parts.entries()) number(part, index);
    for (const part of parts) part.querySelector("[data-role-remove]").hidden = parts.length === 1;
  };
  box.querySelector("[data-role-add]").addEventListener("click", () => {
    list.append(template.content.cloneNode(true));
    renumber();
    list.lastElementChild.querySelector("input").focus();
    box.dispatchEvent(new Event("input", { bubbles: true }));
  });
  list.addEventListener("click", (event) => {
    const button = event.target.closest("[data-role-remove]");
    if (!button || list.children.length === 1) return;
    button.closest("[data-role]").remove();
    renumber();
    box.dispatchEvent(new Event("input", { bubbles: true }));
  });
  renumber();
}
