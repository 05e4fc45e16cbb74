/**
 * The YAML editor: CodeMirror in a shadow root over the textarea, which stays what is sent.
 *
 * The editor's rules of style are constructed sheets of the shadow root; in the document they would
 * be a style element, which the content security policy forbids.
 */

/** @param {HTMLTextAreaElement} area @param {string} text */
function take(area, text) {
  area.value = text;
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

/** @param {Element} panel */
function problemsIn(panel) {
  return [...panel.querySelectorAll("[data-line]")].map((item) => ({
    line: Number(item.dataset.line),
    text: item.textContent.trim(),
  }));
}

/** @param {HTMLTextAreaElement} area */
export async function init(area) {
  const { createEditor, markProblems, showLine } = await import(area.dataset.editorUrl);
  const host = document.createElement("div");
  host.className = "editor";
  const root = host.attachShadow({ mode: "open" });
  const label = document.querySelector(`label[for="${area.id}"]`);
  area.before(host);
  const view = createEditor({
    parent: root,
    root,
    text: area.value,
    label: label?.textContent ?? "",
    phrases: JSON.parse(area.dataset.phrases ?? "{}"),
    onChange: (text) => take(area, text),
  });
  const { selectionStart: anchor, selectionEnd: head } = area;
  const isTypedIn = document.activeElement === area;
  area.hidden = true;
  if (isTypedIn) {
    // Whoever began to type before the editor had come goes on in it, with the same selection.
    view.dispatch({ selection: { anchor, head } });
    view.focus();
  }
  label?.addEventListener("click", () => view.focus());
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.id === "fit") markProblems(view, problemsIn(event.target));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-show-line]");
    if (button) showLine(view, Number(button.dataset.showLine));
  });
}
