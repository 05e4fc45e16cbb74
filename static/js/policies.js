/** The policies of the job form: adds a row, removes one, moves one up, renumbers the fields. */

const ATTRIBUTES = ["name", "id", "for", "list", "aria-describedby"];

/** @param {Element} list */
function renumber(list) {
  for (const [index, row] of [...list.children].entries()) {
    for (const element of row.querySelectorAll("[name], [id], [for], [list]")) {
      for (const attribute of ATTRIBUTES) {
        const value = element.getAttribute(attribute);
        if (value)
          element.setAttribute(attribute, value.replace(/policies-\d+-/g, `policies-${index}-`));
      }
    }
    row.querySelector("[data-policy-up]").hidden = index === 0;
  }
}

/** @param {Element} row */
function clear(row) {
  for (const field of row.querySelectorAll("input, select")) {
    field.value = "";
    field.removeAttribute("aria-invalid");
  }
  for (const error of row.querySelectorAll(".field-error")) error.remove();
}

/** @param {HTMLFormElement} form bound once; roles that are added later are served as well */
export function init(form) {
  for (const list of form.querySelectorAll("[data-policy-list]")) renumber(list);
  form.addEventListener("click", (event) => {
    const button = event.target.closest(
      "[data-policy-add], [data-policy-remove], [data-policy-up]",
    );
    const list = button?.closest("[data-policies]")?.querySelector("[data-policy-list]");
    if (!list) return;
    const row = button.closest("[data-policy]");
    if (button.matches("[data-policy-add]")) {
      const added = list.lastElementChild.cloneNode(true);
      clear(added);
      list.append(added);
    } else if (button.matches("[data-policy-up]")) row.previousElementSibling?.before(row);
    else if (list.children.length === 1) clear(row);
    else row.remove();
    renumber(list);
    const focused = button.matches("[data-policy-add]") ? list.lastElementChild : list;
    (button.matches("[data-policy-up]") ? row : focused).querySelector("input")?.focus();
    form.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
