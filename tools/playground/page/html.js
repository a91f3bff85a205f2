// Text to elements: nothing that rlc or a recipe says is read as HTML.

export function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A text with the styles of a terminal.
export function ansi(text) {
  let style = "";
  return text.split(/(\x1b\[[\d;]*m)/).flatMap((part) => {
    if (part.startsWith("\x1b[")) {
      style = part.slice(2, -1).split(";").map((number) => `ansi${number}`).join(" ");
      return [];
    }
    return style && style !== "ansi0" ? [element("span", { className: style }, part)] : [part];
  });
}

// A sentence with `words` of the language in it.
export function code(text) {
  return text.split(/`([^`]+)`/).map((part, i) => (i % 2 ? element("code", {}, part) : part));
}
