/**
 * What of CodeMirror 6 the pages use: a YAML editor with line numbers, history, search, folding and
 * marks for problems. Built into codemirror.min.js as README.md one folder up says.
 */

import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import {
  bracketMatching,
  foldGutter,
  foldKeymap,
  HighlightStyle,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string), tags.attributeValue], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warning)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--text-muted)", fontStyle: "italic" },
  { tag: [tags.keyword, tags.typeName, tags.labelName], color: "var(--danger)" },
  { tag: [tags.punctuation, tags.separator, tags.meta], color: "var(--text-muted)" },
]);

const frame = EditorView.theme({
  "&": {
    backgroundColor: "var(--surface)",
    border: "1px solid var(--border-strong)",
    borderRadius: "var(--radius)",
    color: "var(--text)",
    fontSize: "12.5px",
  },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "1px" },
  ".cm-scroller": {
    fontFamily: "var(--font-mono)",
    lineHeight: "20px",
    maxHeight: "72vh",
    minHeight: "320px",
    overflow: "auto",
  },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-content, .cm-gutter": { minHeight: "320px" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": {
    backgroundColor: "var(--surface-sunken)",
    borderRight: "1px solid var(--border)",
    color: "var(--text-muted)",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { boxShadow: "inset 2px 0 0 var(--accent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground":
    { background: "var(--data-1)" },
  ".cm-selectionMatch, .cm-searchMatch": { backgroundColor: "var(--warning-soft)" },
  ".cm-panels": { backgroundColor: "var(--surface-sunken)", color: "var(--text)" },
  ".cm-textfield": {
    backgroundColor: "var(--surface)",
    border: "1px solid var(--border-strong)",
    color: "var(--text)",
  },
  ".cm-button": {
    background: "var(--surface)",
    border: "1px solid var(--border-strong)",
    color: "var(--text)",
  },
  ".cm-foldPlaceholder": {
    backgroundColor: "var(--surface-sunken)",
    borderColor: "var(--border)",
    color: "var(--text-muted)",
  },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--danger)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--surface-raised)",
    border: "1px solid var(--border)",
    color: "var(--text)",
  },
});

/**
 * Typing over a selection, done by the editor itself: Chromium would keep the look of what it
 * replaces in a style attribute, which the content security policy refuses and reports.
 */
const typingOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const isOver = event.inputType === "insertText" && event.data && !view.composing;
    if (!isOver || view.state.selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type" });
    return true;
  },
});

/**
 * Make an editor. Its rules of style go into `root`, a shadow root, as constructed sheets, so that
 * the content security policy need not allow style elements.
 *
 * @param {{ parent: Element, root: ShadowRoot, text: string, label: string,
 *   phrases: Record<string, string>, onChange: (text: string) => void }} options
 */
export function createEditor({ parent, root, text, label, phrases, onChange }) {
  return new EditorView({
    parent,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        foldGutter(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        history(),
        drawSelection(),
        bracketMatching(),
        indentOnInput(),
        indentUnit.of("  "),
        search({ top: true }),
        highlightSelectionMatches(),
        yaml(),
        syntaxHighlighting(colours),
        frame,
        typingOver,
        EditorState.phrases.of(phrases),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": label, "aria-multiline": "true" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onChange(update.state.doc.toString());
        }),
        // Tab is left alone: it leaves the editor. Ctrl-] and Ctrl-[ shift a line.
        keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, ...foldKeymap]),
      ],
    }),
  });
}

/**
 * Mark the lines that have problems.
 *
 * @param {EditorView} view
 * @param {{ line: number, text: string }[]} problems lines counted from 1
 */
export function markProblems(view, problems) {
  const found = problems
    .filter(({ line }) => line >= 1 && line <= view.state.doc.lines)
    .map(({ line, text }) => {
      const { from, to } = view.state.doc.line(line);
      return { from, to, severity: /** @type {const} */ ("error"), message: text };
    });
  view.dispatch(setDiagnostics(view.state, found));
}

/**
 * Move to a line and into the editor.
 *
 * @param {EditorView} view
 * @param {number} line counted from 1
 */
export function showLine(view, line) {
  const { from } = view.state.doc.line(Math.min(Math.max(line, 1), view.state.doc.lines));
  view.dispatch({ selection: { anchor: from }, scrollIntoView: true });
  view.focus();
}
