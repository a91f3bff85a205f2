// The page: what is typed goes to the worker, and what rlc says of it into the panel.

import { ansi, code, element } from "./html.js";
import { Editor } from "./editor.js";
import { readLink, writeLink } from "./link.js";

const PAUSE = 250;  // milliseconds without a key, before a text is checked
const FIRST = "quickstart";
const $ = (id) => document.getElementById(id);
const tabs = [...document.querySelectorAll("[role=tab]")];
const json = async (name) => (await fetch(name)).json();
const [rules, recipes] = await Promise.all([json("grammar.json"), json("recipes.json")]);
const editor = new Editor(document.querySelector("textarea"), rules, () => ask(PAUSE));

// ---- the worker answers one question at a time

const { content: pyodide } = document.querySelector("meta[name=pyodide]");
const worker = new Worker(`worker.js?pyodide=${encodeURIComponent(pyodide)}`, { type: "module" });
let queue = [];  // the first is being answered

function send(question, use) {
  // Of questions about the text that wait, only the last matters.
  queue = queue.filter((other, i) => i === 0 || !other.question.want || !question.want);
  queue.push({ question, use });
  if (queue.length === 1) worker.postMessage(question);
}

worker.onmessage = ({ data }) => {
  const { question, use } = queue.shift();
  if (queue.length) worker.postMessage(queue[0].question);
  if (data.failed) fail(data.failed);
  else if (question.code || question.text === editor.text) use(data.answer);
};
worker.onerror = (event) => fail(event.message ?? "its worker did not start");

function fail(message) {
  say("rlc does not run here. Reload the page, or install it: pip install rlc");
  $("panel").replaceChildren(element("pre", {}, message));
}

// ---- what is shown

let wanted = "check", timer;

function ask(pause = 0) {
  clearTimeout(timer);
  $("panel").setAttribute("aria-busy", "true");
  const want = wanted;
  timer = setTimeout(() => send({ text: editor.text, want }, (said) => show(want, said)), pause);
}

function say(text) {
  $("status").textContent = text;
}

function show(want, said) {
  if (want !== wanted) return;
  const blank = !editor.text.trim();
  editor.mark(blank ? [] : said.findings);
  $("share").disabled = said.secret;
  say(blank ? "Write a recipe, or start from one of those above." : counted(said));
  const panel = $("panel");
  panel.replaceChildren(...(blank ? [] : parts(want, said)));
  panel.removeAttribute("aria-busy");
}

function counted({ counts, unread }) {
  return unread.length ? `${counts}; not read here: ${unread.join(", ")}` : counts;
}

function parts(want, said) {
  if (want === "check") return [...fixAll(said), ...said.findings.map(finding)];
  if (said.result === null) {
    return [element("p", {}, "The recipe has errors: ", button("see Check", () => choose("check")))];
  }
  const text = want === "summary" || want === "full" ? ansi(said.result) : [said.result];
  const shown = element("pre", { className: "result" }, ...text);
  if (want !== "formatted") return [shown];
  if (said.result === editor.text) return [element("p", {}, "It is laid out like this already."), shown];
  const use = () => editor.put(said.result);
  return [element("p", {}, button("Put it into the editor", use)), shown];
}

function fixAll({ findings }) {
  const safe = findings.filter((finding) => finding.fix?.safe).length;
  if (safe < 2) return [];
  const fix = () => send({ text: editor.text, want: "fixed" }, (said) => editor.put(said.result));
  return [element("p", {}, button(`Apply the ${safe} clear corrections`, fix))];
}

function finding(found) {
  const page = element("pre", { className: "page", hidden: true });
  const more = button(`What ${found.code} means`, () => {
    page.hidden = !page.hidden;
    more.setAttribute("aria-expanded", String(!page.hidden));
    if (!page.childNodes.length) {
      send({ code: found.code }, (said) => page.replaceChildren(...ansi(said.result)));
    }
  });
  more.setAttribute("aria-expanded", "false");
  const buttons = element("p", {});
  if (found.fix) buttons.append(button(`Fix: ${found.fix.title}`, () => editor.replace(found.fix.edits)));
  if (found.start !== null) buttons.append(button(`Go to line ${found.line}`, () => editor.go(found)));
  buttons.append(more);
  const title = element("h2", {}, `${found.severity}[${found.code}]`);
  return element(
    "article",
    { className: `finding ${found.severity}` },
    title,
    element("p", { className: "message" }, ...code(found.message)),
    element("pre", {}, ...ansi(found.excerpt)),
    ...(found.help ? [element("p", { className: "help" }, "help: ", ...code(found.help))] : []),
    buttons,
    page,
  );
}

function button(text, press) {
  return element("button", { type: "button", onclick: press }, ...code(text));
}

// ---- tabs, the menu, links

function choose(want) {
  wanted = want;
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", String(tab.id === want));
    tab.tabIndex = tab.id === want ? 0 : -1;
  }
  $("panel").setAttribute("aria-labelledby", want);
  ask();
}

for (const [i, tab] of tabs.entries()) {
  tab.onclick = () => choose(tab.id);
  tab.onkeydown = ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step) return;
    const next = tabs.at((i + step) % tabs.length);
    next.focus();
    choose(next.id);
  };
}

$("recipes").append(...recipes.map(({ name, title }) => new Option(`${name}: ${title}`, name)));
$("recipes").onchange = () => open($("recipes").value);

function open(name) {
  $("recipes").value = name;
  editor.put(recipes.find((recipe) => recipe.name === name).text);
}

$("share").onclick = async () => {
  history.replaceState(null, "", await writeLink(editor.text));
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is copied.");
  } catch {
    say("The link is in the address bar.");
  }
};

async function begin() {
  const shared = await readLink(location.hash);
  if (shared === null) open(FIRST);
  else {
    $("recipes").selectedIndex = -1;
    editor.put(shared);
  }
}

addEventListener("hashchange", begin);
say("Starting Python: 7 MB the first time …");
choose(wanted);
await begin();
