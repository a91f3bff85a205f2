// Loads the built extension as VS Code does, with a stand-in for VS Code's own module, and prints
// which command it would start in the folders that are named.
"use strict";

const Module = require("node:module");
const path = require("node:path");

/** Anything that is asked of VS Code is there, and does nothing. */
function anything(known = {}) {
  return new Proxy(function () {}, {
    get: (_, name) => (name in known ? known[name] : name === Symbol.toPrimitive ? () => "" : anything()),
    apply: () => anything(),
    construct: () => anything(),
  });
}

const settings = JSON.parse(process.argv[2]);
const vscode = anything({
  workspace: anything({ getConfiguration: () => ({ get: (name) => settings[name] }) }),
});
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const extension = require(path.join(__dirname, "..", "dist", "extension.js"));
const { activate, deactivate, command } = extension;
const commands = process.argv.slice(3).map((folder) => command(folder || undefined));
process.stdout.write(JSON.stringify({ hooks: [typeof activate, typeof deactivate], commands }));
