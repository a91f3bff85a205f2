// A text area with line numbers, over the same text with colours, over the same with marks.

const escaped = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]);

export class Editor {
  // `rules` are the patterns of a TextMate grammar.
  constructor(area, rules, changed) {
    this.area = area;
    this.frame = area.closest(".editor");
    this.rules = rules.map((rule) => ({ ...rule, pattern: new RegExp(rule.match ?? rule.begin, "dy") }));
    this.findings = [];
    area.addEventListener("input", () => {
      this.findings = [];  // their places have moved
      this.draw();
      changed();
    });
    area.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
      event.preventDefault();
      const line = area.value.slice(0, area.selectionStart).split("\n").at(-1);
      const opens = /[{([]\s*$/.test(line) ? "  " : "";
      this.replace([{ start: area.selectionStart, end: area.selectionEnd, text: `\n${line.match(/^ */)[0]}${opens}` }]);
    });
  }

  get text() {
    return this.area.value;
  }

  // Edit as a person would, so that the browser's undo takes it back.
  replace(edits) {
    this.area.focus();
    for (const { start, end, text } of edits.toReversed()) {
      this.area.setSelectionRange(start, end);
      const command = text ? "insertText" : "delete";
      if (start === end && !text) continue;
      if (!document.execCommand(command, false, text)) {
        this.area.setRangeText(text, start, end, "end");
        this.area.dispatchEvent(new Event("input"));
      }
    }
  }

  put(text) {
    if (text !== this.text) this.replace([{ start: 0, end: this.text.length, text }]);
    this.area.setSelectionRange(0, 0);
    this.frame.scrollTo(0, 0);
  }

  go({ start, end, line }) {
    this.area.focus();
    this.area.setSelectionRange(start, end);
    const height = this.area.scrollHeight / Math.max(1, this.text.split("\n").length);
    this.frame.scrollTo({ top: (line - 1) * height - this.frame.clientHeight / 2 });
  }

  mark(findings) {
    this.findings = findings.filter((finding) => finding.start !== null);
    this.draw();
  }

  // Once a frame: a text that is put in comes as an event for each line.
  draw() {
    cancelAnimationFrame(this.drawing);
    this.drawing = requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    const [numbers, colors, marks] = this.frame.querySelectorAll("pre");
    const lines = this.text.split("\n");
    const worst = new Map();
    for (const { line, severity } of this.findings) {
      if (worst.get(line) !== "error") worst.set(line, severity);
    }
    const number = (_, i) => `<span class="${worst.get(i + 1) ?? ""}">${i + 1}</span>`;
    numbers.innerHTML = lines.map(number).join("\n");
    colors.innerHTML = `${lines.map((line) => this.colored(line)).join("\n")}\n`;
    marks.innerHTML = `${this.marked()}\n`;
  }

  colored(line) {
    let html = "", at = 0, plain = 0;
    const flush = () => { html += escaped(line.slice(plain, at)); };
    while (at < line.length) {
      const [rule, found] = this.ruleAt(line, at);
      if (!found?.[0]) {
        at += 1;
        continue;
      }
      flush();
      if (rule.begin) {
        const length = found[0].length;
        const rest = new RegExp(`(?:\\\\.|(?!${rule.end}).)*(?:${rule.end})`).exec(line.slice(at + length))[0];
        html += span(rule.name, line.slice(at, (at += length + rest.length)));
      } else if (rule.captures) {
        const start = at;
        for (const [index, { name }] of Object.entries(rule.captures)) {
          const [from, to] = found.indices[index];
          html += escaped(line.slice(at, from)) + span(name, line.slice(from, to));
          at = to;
        }
        html += escaped(line.slice(at, start + found[0].length));
        at = start + found[0].length;
      } else {
        html += span(rule.name, found[0]);
        at += found[0].length;
      }
      plain = at;
    }
    flush();
    return html;
  }

  ruleAt(line, at) {
    for (const rule of this.rules) {
      rule.pattern.lastIndex = at;
      const found = rule.pattern.exec(line);
      if (found) return [rule, found];
    }
    return [];
  }

  marked() {
    const ranges = this.findings
      .map(({ start, end, severity }) => ({ start, end: Math.max(end, start + 1), severity }))
      .sort((a, b) => a.start - b.start || b.end - a.end);
    let html = "", at = 0;
    for (const { start, end, severity } of ranges) {
      if (end <= at) continue;
      const from = Math.max(at, start);
      const part = this.text.slice(from, end).replace(/^\n|^$/, " $&");  // the end of a line shows too
      html += `${escaped(this.text.slice(at, from))}<mark class="${severity}">${escaped(part)}</mark>`;
      at = end;
    }
    return html + escaped(this.text.slice(at));
  }
}

const span = (scope, text) => `<span class="${scope.replaceAll(".", " ")}">${escaped(text)}</span>`;
